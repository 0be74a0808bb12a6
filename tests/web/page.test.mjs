// The operator's page in a real browser: over recordings of each fault, and over masters that come and go.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { blamedIn, openBrowser, openPage, Programs, proxyUnder, recordings, ROOT } from "./support.mjs";

const AXE = readFileSync(join(ROOT, "tests/web/node_modules/axe-core/axe.min.js"), "utf8");
const HOSTILE = `<img src=x onerror="alert(1)"> \u05d0\u05d1 ${"long ".repeat(12)}`.trim(); // a master takes no control characters

let programs;
let browser;
let recorded; // the URL of a page over all recordings

before(async () => {
  programs = new Programs();
  browser = await openBrowser();
  recorded = (await programs.page(recordings().flatMap(({ file }) => ["--recording", file]))).url;
});

after(async () => {
  await browser?.close();
  await programs?.endAll();
});

async function withPage(options, use) {
  const page = await openPage(browser, options);
  try {
    await use(page);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
  }
}

async function complaintsOf(page) {
  await page.evaluate(AXE); // by the debugger, which the content security policy does not bind
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`));
}

for (const { id } of recordings()) {
  const blamed = blamedIn(id);
  test(`${id}: who is to blame is found within three clicks`, () => withPage({}, async (page) => {
    await page.goto(recorded);
    const row = page.getByRole("region", { name: "jobs" }).getByRole("row").filter({ hasText: `recording ${id}.c4rec` });
    await row.getByRole("link").click(); // one
    const verdict = page.getByRole("article").first();
    await verdict.waitFor();
    const sentence = await verdict.locator(".sentence").innerText();
    assert.match(sentence.toLowerCase(), new RegExp(`confirmed ${blamed.syndrome}`), sentence);
    if (blamed.kind === "rank") assert.match(sentence, new RegExp(`rank ${blamed.number}\\b.*${blamed.host}`), sentence);
    if (blamed.kind === "nic") assert.match(sentence, new RegExp(`NIC .*${blamed.host}\\b`), sentence);
    if (blamed.kind === "connection") assert.match(sentence, /queue pairs?|connections?/, sentence);
    assert.ok(await verdict.getByText("What to do").isVisible());
    assert.ok(await verdict.locator(".evidence li").count() > 0);
  }));
}

test("a hang shows who waits for whom", () => withPage({}, async (page) => {
  await page.goto(`${recorded}#/job/simulated-stop`);
  const drawing = page.getByRole("img", { name: /wait for rank 4$/ });
  await drawing.waitFor();
  assert.match(await drawing.innerHTML(), /rank 4/);
}));

test("a slow NIC stands out in the matrix, and its cell opens its queue pairs", () => withPage({}, async (page) => {
  await page.goto(`${recorded}#/job/fabric-slow-nic?part=latency&by=node`);
  const matrix = page.getByRole("application", { name: /latency matrix/ });
  await matrix.waitFor();
  const cells = page.getByRole("region", { name: "cells of the latency matrix" });
  const first = await cells.getByRole("row").nth(1).innerText();
  assert.match(first, /host7/);
  await cells.getByRole("button").filter({ hasText: /host/ }).first().click();
  const pairs = page.getByRole("region", { name: "queue pairs of the cell" });
  await pairs.waitFor();
  assert.ok(await pairs.getByRole("row").count() > 1);
  assert.match(page.url(), /source=host/);
  // By keys alone.
  await matrix.focus();
  const before = new URL(page.url()).hash;
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowUp");
  await page.waitForFunction((hash) => location.hash !== hash, before);
}));

test("a recording's moments are gone through, and a link keeps the place", () => withPage({}, async (page) => {
  await page.goto(`${recorded}#/job/fabric-slow-rank`);
  await page.getByRole("article").first().waitFor();
  await page.getByLabel("Moment of the recording").fill("0");
  await page.getByText("Nothing is wrong with this job").waitFor();
  const link = page.url();
  assert.match(link, /at=\d+/);
  await page.goto("about:blank");
  await page.goto(link);
  await page.getByText("Nothing is wrong with this job").waitFor();
}));

const VIEWS = ["", "#/job/fabric-slow-nic", "#/job/fabric-slow-nic?part=iterations", "#/job/fabric-slow-nic?part=latency",
  "#/job/fabric-slow-nic?part=ranks", "#/job/fabric-slow-nic?part=history", "#/network", "#/job/no-such-job"];

for (const theme of ["light", "dark"]) {
  test(`no view has a barrier that axe finds, ${theme}`, () => withPage({ theme }, async (page) => {
    for (const view of VIEWS) {
      await page.goto("about:blank");
      await page.goto(recorded + view);
      await page.locator("main h1").first().waitFor({ state: "attached" });
      await page.waitForTimeout(600);
      assert.deepEqual(await complaintsOf(page), [], view);
    }
  }));
}

test("nothing is wider than a narrow screen", () => withPage({ width: 360, height: 700 }, async (page) => {
  for (const view of VIEWS) {
    await page.goto("about:blank");
    await page.goto(recorded + view);
    await page.locator("main h1").first().waitFor({ state: "attached" });
    await page.waitForTimeout(400);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 360, `${view} is ${wide} wide`);
  }
}));

test("a table is saved as CSV, and keys lead everywhere", () => withPage({}, async (page) => {
  await page.goto(recorded);
  const [download] = await Promise.all([
    page.waitForEvent("download"), page.getByRole("button", { name: "save as CSV: jobs" }).click(),
  ]);
  const text = readFileSync(await download.path(), "utf8");
  assert.match(text, /^state,job,ranks,/);
  assert.equal(text.trim().split("\r\n").length, recordings().length + 1);
  await page.goto(`${recorded}#/job/fabric-slow-nic`);
  await page.getByRole("article").first().waitFor();
  await page.keyboard.press("3");
  await page.getByRole("application", { name: /latency matrix/ }).waitFor();
  await page.keyboard.press("u");
  await page.getByText(/\d\d:\d\d:\d\d UTC$/).first().waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("f");
  await page.getByRole("heading", { name: "What is wrong now" }).waitFor();
}));

test("behind a proxy under a path", () => withPage({}, async (page) => {
  const proxy = await proxyUnder("/ops/c4/", recorded);
  try {
    await page.goto(proxy.url);
    await page.getByRole("region", { name: "jobs" }).waitFor();
    await page.goto(`${proxy.url}#/job/simulated-stop`);
    await page.getByRole("article").first().waitFor();
  } finally {
    await page.goto("about:blank");
    proxy.close();
  }
}));

test("hostile names are text; a master that goes and comes is said, and the page goes on", () => withPage({}, async (page) => {
  const live = await programs.page();
  const master = await programs.master(HOSTILE);
  await page.goto(live.url);
  const job = page.getByRole("region", { name: "jobs" }).getByText("<img src=x onerror=");
  await job.waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  await job.click();
  await page.getByText("No agent has reported to this master yet").waitFor();
  assert.deepEqual(await complaintsOf(page), []);
  await Programs.end(master);
  await page.getByText("There is no such job here (any more)").waitFor();
  await programs.master(HOSTILE);
  await page.getByText("No agent has reported to this master yet").waitFor({ timeout: 20_000 });
  // The page's own server.
  await Programs.end(live.child, "SIGKILL");
  await page.getByText("the server of this page does not answer").waitFor();
  await programs.page([], new URL(live.url).host);
  await page.getByText("the server of this page does not answer").waitFor({ state: "detached", timeout: 20_000 });
}));

test("a browser whose clock is an hour off says so", () => withPage({}, async (page) => {
  await page.addInitScript(() => {
    const now = Date.now.bind(Date);
    Date.now = () => now() - 3600_000;
  });
  await page.goto(recorded);
  await page.getByText(/The clock of this browser is 60 min behind the server's/).waitFor();
}));
