// The pictures of docs/page/: each view in both themes, over recordings that the tests keep; some in the light one alone.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { openBrowser, openPage, Programs, recordings, ROOT } from "./support.mjs";

const OUT = join(ROOT, "docs/page");
const VIEWS = [
  { name: "fleet", at: "", light: true },
  { name: "hang", at: "#/job/simulated-stop" },
  { name: "latency", at: "#/job/simulated-slow-nic?part=latency&by=rank" },
  { name: "timeline", at: "#/job/fabric-slow-rank?part=timeline" },
  { name: "ranks", at: "#/job/simulated-stop?part=ranks", light: true },
];

const programs = new Programs();
const browser = await openBrowser();
try {
  mkdirSync(OUT, { recursive: true });
  const { url } = await programs.page(recordings().flatMap(({ file }) => ["--recording", file]));
  for (const theme of ["light", "dark"]) {
    const page = await openPage(browser, { theme, width: 1100, height: 760, timezoneId: "UTC" });
    for (const { name, at, light } of VIEWS) {
      if (light && theme === "dark") continue;
      await page.goto("about:blank");
      await page.goto(url + at);
      await page.locator("main h1").first().waitFor({ state: "attached" });
      await page.waitForTimeout(1500);
      await page.screenshot({ path: join(OUT, `${name}-${theme}.png`) });
    }
    await page.context().close();
  }
} finally {
  await browser.close();
  await programs.endAll();
}
