declare module "*.css";

interface ImportMeta {
  readonly env: { readonly BASE_URL: string };
}
