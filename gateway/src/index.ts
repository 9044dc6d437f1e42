/** `smooth-limiter-gateway`: all of `smooth-limiter-gateway/web`, and what needs Node. */
export { type UpgradeSocket, upgradeGateway } from "./hosts/upgrade.ts";
export { fileSource } from "./sources/file-source.ts";
export * from "./web.ts";
