import { FetchedProgram, inPath, type Program } from "./fetched-program.ts";

const NAMES = ["chromium-headless-shell", "chromium", "google-chrome", "chrome"];

const fetched = new FetchedProgram(
  "chromium",
  "usr/lib/chromium/chromium-headless-shell",
  ["chromium-headless-shell"],
  "No Chromium: install chromium or Chrome, or set CHROMIUM to its path",
);

/** Returns a headless Chromium: that of $CHROMIUM, an installed one, or a fetched one. */
export async function headlessChromium(): Promise<Program> {
  const command = process.env.CHROMIUM || inPath(...NAMES);
  return command ? { command, env: process.env } : fetched.get();
}
