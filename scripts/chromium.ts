import { FetchedProgram, inPath, type Program } from "./fetched-program.ts";

const NAMES = ["chromium-headless-shell", "chromium", "google-chrome", "chrome"];

const fetched = new FetchedProgram(
  "chromium",
  "usr/lib/chromium/chromium-headless-shell",
  ["chromium-headless-shell"],
  "No Chromium: install chromium or Chrome, or set CHROMIUM to its path",
);

/** Headless Chromium: that of $CHROMIUM, one that is installed, or one that is fetched. */
export async function headlessChromium(): Promise<Program> {
  const command = process.env.CHROMIUM || inPath(...NAMES);
  return command ? { command, env: process.env } : fetched.get();
}
