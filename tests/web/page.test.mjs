// The operator's page in a real browser: over recordings of each fault, and over masters that come and go.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BIN, blamedIn, openBrowser, openPage, Programs, proxyUnder, recordings, ROOT } from "./support.mjs";

const AXE = readFileSync(join(ROOT, "tests/web/node_modules/axe-core/axe.min.js"), "utf8");
const HOSTILE = `<img src=x onerror="alert(1)"> \u05d0\u05d1 ${"long ".repeat(12)}`.trim(); // a master takes no control characters

// Of two leaves and two spines, as an operator's file tells it.
const TOPOLOGY = {
  leaves: ["leaf0", "leaf1"].map((name, place) => ({ name, addresses: [`10.9.0.${place + 1}`] })),
  spines: ["spine0", "spine1"].map((name, place) => ({ name, addresses: [`10.9.1.${place + 1}`] })),
  servers: ["leaf0", "leaf1"].map((leaf, place) => ({
    name: `host${place}`, nics: [{ name: "nic0", address: `10.8.${place}.2`, ports: [{ leaf, gateway: `10.8.${place}.1`, leaf_port: "p1", rate_mbps: 100000 }] }],
  })),
  uplinks: ["leaf0", "leaf1"].flatMap((leaf, a) => ["spine0", "spine1"].map((spine, b) => ({
    leaf, spine, leaf_port: `u${b}`, spine_port: `d${a}`, leaf_address: `10.7.${a}.${10 + b}`, spine_address: `10.7.${a}.${20 + b}`, rate_mbps: 100000,
    ...(a === 1 && b === 1 ? { faulty: true, why: "cable out" } : {}),
  }))),
};

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
  await page.getByRole("img", { name: /latencies of \d+ queue pairs from .*, [1-9]\d* slow at some time/ }).waitFor();
  await page.getByRole("button", { name: "save as SVG: history of a cell" }).waitFor();
  assert.deepEqual(await complaintsOf(page), []);
  // By keys alone.
  await matrix.focus();
  const before = new URL(page.url()).hash;
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowUp");
  await page.waitForFunction((hash) => location.hash !== hash, before);
}));

test("a region of the matrix is zoomed into, by pulling and by keys, and stands in the link", () => withPage({}, async (page) => {
  await page.goto(`${recorded}#/job/fabric-slow-nic?part=latency&by=node`);
  const whole = page.getByRole("application", { name: /latency matrix of 8 by 8,/ });
  await whole.waitFor();
  const box = await whole.boundingBox();
  const at = (cell, length) => ((cell + 0.5) / 8) * length;
  await page.mouse.move(box.x + at(2, box.width), box.y + at(1, box.height));
  await page.mouse.down();
  await page.mouse.move(box.x + at(5, box.width), box.y + at(3, box.height), { steps: 4 });
  await page.getByText("host1 to host3 → host2 to host5:").waitFor();
  await page.mouse.up();
  const zoomed = page.getByRole("application", { name: /latency matrix of 3 by 4, a region of 8 by 8/ });
  await zoomed.waitFor();
  assert.match(page.url(), /top=host1&bottom=host3&left=host2&right=host5/);
  assert.deepEqual(await complaintsOf(page), []);
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await zoomed.focus();
  await page.keyboard.press("Escape");
  await whole.waitFor();
  // By keys alone.
  await whole.focus();
  await page.keyboard.press("ArrowDown");
  for (const key of ["ArrowDown", "ArrowRight", "ArrowRight"]) await page.keyboard.press(`Shift+${key}`);
  await page.getByText("host0 to host1 → host0 to host2:").waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("application", { name: /latency matrix of 2 by 3,/ }).waitFor();
  await page.getByRole("button", { name: "show the ranks of this region" }).click();
  await page.waitForURL(/by=rank.*top=rank/);
  await page.getByRole("button", { name: "show the whole matrix" }).click();
  await page.getByRole("application", { name: /, a region of/ }).waitFor({ state: "detached" });
}));

// Replies of a server that holds what no recording here does.
const LONG = `${"\u05d0\u05d1\u05d2 ".repeat(60)}<b>${"x".repeat(57)}`; // 300 characters, from right to left
const fleetOf = (job) => ({
  unixNs: `${Date.now()}000000`, version: "test", server: "PAGE_SERVER_ALL",
  jobs: [{ id: "made", job, state: "PAGE_JOB_STATE_RUNNING", host: "host0", ranks: 4, hosts: 4, beganUnixNs: `${Date.now() - 60_000}000000` }],
});
async function serve(page, replies) {
  await page.route(/\/api\/v1\/events/, (route) => route.fulfill({
    contentType: "text/event-stream", body: `event: fleet\ndata: ${JSON.stringify(replies.fleet)}\n\n`,
  }));
  for (const [name, reply] of Object.entries(replies)) {
    await page.route(new RegExp(`/api/v1/${name}(\\?|$)`), (route) => route.fulfill({ json: reply }));
  }
}

test("a matrix with holes: what was not measured is not known, and nobody's zero", () => withPage({}, async (page) => {
  await serve(page, {
    fleet: fleetOf("holes"), verdicts: {},
    matrix: {
      job: "holes", by: "rank", names: ["rank 0", "rank 1", "rank 3"], hosts: ["host0", "host1", "host3"],
      from: [0, 1], to: [1, 2], ratio: [1.5, 0], usPerKib: [2, 3], queuePairs: [1, 1], slow: [false, false],
    },
  });
  await page.goto(`${recorded}#/job/made?part=latency`);
  const matrix = page.getByRole("application", { name: /latency matrix of 3 by 3, 2 cells/ });
  await matrix.waitFor();
  await page.getByText("Nothing was measured of rank 2: whether they are slow is not known.").waitFor();
  const colours = await page.locator(".ground canvas").evaluate((canvas) =>
    [0, 1, 5].map((at) => [...canvas.getContext("2d").getImageData(at % 3, Math.floor(at / 3), 1, 1).data].join()));
  assert.equal(new Set(colours).size, 3, colours.join("; ")); // nothing, a ratio, no ratio
  await matrix.focus();
  await page.keyboard.press("ArrowDown");
  await page.getByText("not known: nothing was measured").waitFor();
}));

test("a name of 300 characters from right to left breaks nothing", () => withPage({ width: 360, height: 700 }, async (page) => {
  await serve(page, { fleet: fleetOf(LONG), verdicts: {} });
  for (const view of ["", "#/job/made"]) {
    await page.goto("about:blank");
    await page.goto(recorded + view);
    const name = page.locator("main bdi.name").filter({ hasText: "<b>xxx" }).first();
    await name.waitFor();
    assert.equal(await page.locator("main bdi b").count(), 0);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    const widest = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((item) => item.getBoundingClientRect().right > 360)
      .map((item) => `${item.tagName}.${item.className}`).slice(0, 6).join(" "));
    assert.ok(wide <= 360, `${view} is ${wide} wide: ${widest}`);
    assert.equal(await name.evaluate((element) => getComputedStyle(element).unicodeBidi), "isolate");
    assert.deepEqual(await complaintsOf(page), []);
  }
}));

test("ten thousand verdicts: the page stays of use", () => withPage({}, async (page) => {
  const verdicts = Array.from({ length: 10_000 }, (_, at) => ({
    jobId: "made", sentence: `CONFIRMED communication slow: rank ${at}`,
    verdict: { id: `v${at}`, state: "VERDICT_STATE_CONFIRMED", syndrome: "SYNDROME_COMMUNICATION_SLOW", sinceUnixNs: `${Date.now() - at}000000`, confirmedUnixNs: `${Date.now() - at}000000` },
  }));
  await serve(page, { fleet: { ...fleetOf("many"), open: verdicts.slice(0, 200), openLeftOut: 9800 }, verdicts: { job: "made", verdicts } });
  await page.goto(`${recorded}#/job/made`);
  await page.getByText("rank 0", { exact: false }).first().waitFor();
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(elements < 20_000, `${elements} elements`);
  await page.getByRole("button", { name: "show 9950 more" }).waitFor();
  await page.getByRole("link", { name: "History" }).click();
  await page.getByRole("region").getByRole("row").nth(5).waitFor();
  await page.getByRole("link", { name: "Fleet" }).click();
  await page.getByRole("heading", { name: "What is wrong now" }).waitFor();
}));

test("a token that runs out while the page is open: said, and not asked for ever", () => withPage({}, async (page) => {
  let valid = true;
  let refused = 0;
  await page.addInitScript(() => sessionStorage.setItem("c4.token", "short.lived"));
  await page.route(/\/api\/v1\//, (route) => {
    if (valid) return route.fallback();
    ++refused;
    return route.fulfill({ status: 401, contentType: "text/plain", body: "the token has expired" });
  });
  const live = await programs.page(["--recording", recordings()[0].file]);
  await page.goto(`${live.url}#/job/${recordings()[0].id}?part=ranks`);
  await page.getByRole("region", { name: "ranks of the job" }).waitFor();
  valid = false;
  await Programs.end(live.child, "SIGKILL"); // the stream ends, and nothing but refusals follows
  await page.getByText("The token that was shown does not count (any more)").waitFor({ timeout: 15_000 });
  await page.getByText("the page does not ask again until it has a token").waitFor();
  assert.ok(await page.getByRole("region", { name: "ranks of the job" }).isVisible());
  await page.waitForTimeout(2500); // what was under way
  const before = refused;
  await page.waitForTimeout(5000);
  assert.equal(refused, before);
  // The user shows another.
  await page.getByLabel(/Another token/).fill("new.one");
  assert.ok(await page.getByRole("button", { name: "look" }).isEnabled());
}));

test("an old browser, which takes no modules, is told what the page needs", () => withPage({}, async (page) => {
  // Such a browser leaves scripts of an unknown type alone.
  await page.route((url) => url.pathname === "/", async (route) => {
    const reply = await route.fetch();
    await route.fulfill({ response: reply, body: (await reply.text()).replaceAll('type="module"', 'type="unknown"') });
  });
  await page.goto(recorded);
  await page.getByText("It needs a browser of 2021 or newer, with scripts.").waitFor();
}));

test("without scripts the page names the commands that show the same", () => withPage({ javaScriptEnabled: false }, async (page) => {
  await page.goto(recorded);
  assert.match(await page.content(), /c4 jobs, c4 verdicts, c4 matrix/);
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

test("the timeline shows what each rank had in hand, closer by keys, and is saved", () => withPage({}, async (page) => {
  await page.goto(`${recorded}#/job/simulated-stop?part=timeline`);
  const table = page.getByRole("region", { name: "what each rank had in hand" });
  await table.getByRole("row").nth(3).waitFor();
  const drawing = page.getByRole("group", { name: /timeline of \d+ rows/ });
  await drawing.focus();
  await page.keyboard.press("+");
  await page.waitForURL(/from=\d+&to=\d+/);
  await page.getByText("5.00 s", { exact: false }).first().waitFor();
  // A moment within the stop: the stopped process, and those that wait.
  const canvas = page.locator(".timeline canvas");
  const box = await canvas.boundingBox();
  await canvas.click({ position: { x: box.width * 0.5, y: 40 } });
  await page.waitForURL(/when=\d+/);
  const row = table.getByRole("row").filter({ hasText: "rank 4: process" });
  await row.getByText("stopped", { exact: true }).waitFor();
  await table.getByRole("row").filter({ hasText: "all_reduce" }).first().waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"), page.getByRole("button", { name: "save as SVG: timeline" }).click(),
  ]);
  const drawn = readFileSync(await download.path(), "utf8");
  assert.match(drawn, /▲ rank 4: process/);
  assert.ok(drawn.split("<rect").length > 10, drawn.slice(0, 2000));
  // Some ranks alone; what is no number is said.
  await page.getByLabel("Ranks", { exact: true }).fill("0-1");
  await page.getByRole("button", { name: "show these" }).click();
  await page.waitForURL(/ranks=0-1/);
  await row.waitFor({ state: "detached" });
  await page.getByLabel("Ranks", { exact: true }).fill("x");
  await page.getByRole("button", { name: "show these" }).click();
  await page.getByText("ranks are numbers and ranges of them").waitFor();
}));

const VIEWS = ["", "#/job/fabric-slow-nic", "#/job/fabric-slow-nic?part=iterations", "#/job/fabric-slow-nic?part=latency",
  "#/job/fabric-slow-nic?part=ranks", "#/job/fabric-slow-nic?part=timeline", "#/job/fabric-slow-nic?part=history", "#/network", "#/job/no-such-job"];

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
    const widest = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((item) => item.getBoundingClientRect().right > 360)
      .map((item) => `${item.tagName}.${item.className}`).slice(0, 6).join(" "));
    assert.ok(wide <= 360, `${view} is ${wide} wide: ${widest}`);
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

test("a job's own master serves the page: that job, under a path too, and on after a restart", () => withPage({}, async (page) => {
  const master = await programs.servedMaster(HOSTILE);
  await page.goto(master.url);
  await page.getByText("No agent has reported to this master yet").waitFor();
  assert.equal(await page.getByRole("link", { name: "Network" }).count(), 0);
  assert.equal(await page.getByRole("button", { name: "open a recording" }).count(), 0);
  assert.deepEqual(await complaintsOf(page), []);
  await page.getByRole("link", { name: "Ranks" }).click();
  await page.getByText("No rank is known").waitFor();
  const proxy = await proxyUnder("/c4/night/", master.url);
  try {
    await page.goto(proxy.url);
    await page.getByText("No agent has reported to this master yet").waitFor();
    await Programs.end(master.child, "SIGKILL");
    await page.getByText(/the server (of this page does not answer|answers 502)/).waitFor();
    await programs.servedMaster(HOSTILE, new URL(master.url).host);
    await page.getByText(/What is shown is of/).waitFor({ state: "detached", timeout: 20_000 });
    await page.getByText("No agent has reported to this master yet").waitFor();
  } finally {
    await page.goto("about:blank");
    proxy.close();
  }
}));

test("a live job: its timeline, what its straggler costs, and a rank that is stopped", () => withPage({}, async (page) => {
  const live = await programs.page();
  const run = await programs.start("c4", ["run", "-n", "4", "--job", "live", "--", join(BIN, "hybrid_trainer"), "--seconds", "120",
    "--width", "256", "--hidden", "128", "--slow-rank", "2", "--slow-factor", "3"], /iteration/);
  await page.goto(`${live.url}#/job/live?part=timeline`);
  await page.getByRole("group", { name: /timeline of \d+ rows/ }).waitFor({ timeout: 20_000 });
  const inHand = page.getByRole("region", { name: "what each rank had in hand" });
  await inHand.getByText(/^rank 3: /).first().waitFor({ timeout: 20_000 });
  // Without a profile it says how to get one; with one whom to blame.
  await page.getByRole("link", { name: "Stragglers" }).click();
  await page.getByText(/record/).first().waitFor();
  await programs.done("c4", ["record", "--job", "live", "--fine", "-o", join(programs.dir, "live.c4rec"), "--seconds", "6"]);
  await page.reload();
  const worker = page.getByRole("button", { name: /^rank 2: slow-down/ });
  await worker.waitFor({ timeout: 20_000 });
  await worker.click();
  await page.waitForURL(/fix=worker%3D2/);
  await page.getByText(/Without rank 2: a step takes/).waitFor({ timeout: 10_000 });
  await page.getByText(/of what stragglers cost is gone/).waitFor();
  assert.deepEqual(await complaintsOf(page), []);
  await worker.focus();
  await page.keyboard.press("Enter");
  await page.getByText("Press workers or causes").waitFor();
  // The matrix of another window than the last.
  await page.getByRole("link", { name: "Latency" }).click();
  await page.getByRole("application", { name: /latency matrix of/ }).waitFor({ timeout: 20_000 });
  await page.getByRole("button", { name: "go through the last minutes" }).click();
  await page.waitForURL(/#\/job\/live-[0-9a-f]{8}\?part=latency/, { timeout: 20_000 });
  await page.getByLabel("Moment of the recording").waitFor();
  await page.getByRole("application", { name: /latency matrix of/ }).waitFor();
  assert.deepEqual(await complaintsOf(page), []);
  await page.goto(`${live.url}#/job/live`);
  // What is wrong, within seconds, without a touch.
  await page.getByRole("link", { name: "What is wrong" }).click();
  const pid = programs.childOf(run.child.pid, "hybrid_trainer", "1");
  process.kill(pid, "SIGSTOP");
  try {
    await page.getByText(/rank 1 \(pid \d+ on [^)]*\) is stopped/).first().waitFor({ timeout: 30_000 });
  } finally {
    process.kill(pid, "SIGCONT");
    await page.goto("about:blank");
    await Programs.end(run.child);
  }
}));

test("the path master serves the page: the network, with its drawing saved as SVG", () => withPage({}, async (page) => {
  const topology = join(programs.dir, "topology.json");
  writeFileSync(topology, JSON.stringify(TOPOLOGY));
  const master = await programs.pathMaster(["--topology", topology]);
  await page.goto(master.url);
  await page.getByRole("img", { name: /2 leaves and 2 spines/ }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Fleet" }).count(), 0);
  assert.deepEqual(await complaintsOf(page), []);
  const [download] = await Promise.all([
    page.waitForEvent("download"), page.getByRole("button", { name: "save as SVG: network" }).click(),
  ]);
  const text = readFileSync(await download.path(), "utf8");
  assert.match(text, /^<\?xml[^]*<svg[^]*xmlns="http:\/\/www.w3.org\/2000\/svg"[^]*leaf0[^]*<\/svg>/);
  assert.match(text, /stroke-width:2.5px/); // the styles are written into it
  // A cable is drained and given back: each is an event, and the slider goes back to when it was not used.
  await page.getByText("Nothing has befallen a cable").waitFor();
  for (const verb of ["drain", "undrain"]) await programs.done("c4", ["paths", verb, "leaf0-spine1"]);
  const events = page.getByRole("region", { name: "events of the network" });
  await events.getByText("given back").waitFor({ timeout: 15_000 });
  await page.getByRole("img", { name: /, 1 down/ }).waitFor();
  await page.getByRole("button", { name: "previous event" }).click();
  await page.getByRole("button", { name: "previous event" }).click();
  await page.getByRole("img", { name: /, 2 down/ }).waitFor();
  await page.waitForURL(/event=1/);
  const slider = page.getByLabel("Moment of the network");
  assert.match(await slider.getAttribute("aria-valuetext"), /drained/);
  assert.deepEqual(await complaintsOf(page), []);
  await page.getByRole("button", { name: "next event" }).click();
  await page.getByRole("img", { name: /, 1 down/ }).waitFor();
}));

test("a recording is dropped onto the page, gone through, and shared as a link", () => withPage({}, async (page) => {
  const live = await programs.page(["--run-dir", join(programs.dir, "nobody")], "127.0.0.1:0", "no-logs"); // without the masters of other tests
  await page.goto(live.url);
  await page.getByText("No job has a master here.").waitFor();
  const file = recordings().find(({ id }) => id === "simulated-stop").file;
  const drop = (name, bytes) => page.evaluate(([named, base64]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], named));
    for (const kind of ["dragover", "drop"]) dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [name, bytes.toString("base64")]);
  await drop("holiday.jpg", Buffer.from("no recording at all"));
  await page.getByText(/holiday\.jpg.*(no recording|not a recording)/).waitFor();
  await drop("empty.c4rec", Buffer.alloc(0));
  await page.getByText("empty.c4rec is empty").waitFor();
  await drop("night.c4rec", readFileSync(file));
  const verdict = page.getByRole("article").first();
  await verdict.waitFor();
  assert.match(await verdict.locator(".sentence").innerText(), /rank 4/);
  await page.getByLabel("Moment of the recording").fill("0");
  await page.getByText("Nothing is wrong with this job").waitFor();
  await page.getByRole("button", { name: "next change" }).click();
  await page.getByRole("article").first().waitFor();
  const link = page.url();
  assert.match(link, /#\/job\/night-[0-9a-f]{8}\?at=\d+/);
  // Somebody else.
  const other = await openPage(browser);
  await other.goto(link);
  assert.match(await other.getByRole("article").first().locator(".sentence").innerText(), /rank 4/);
  await other.context().close();
  // Chosen by the button, a second time: the same.
  await page.getByRole("link", { name: "Fleet" }).click();
  await page.getByLabel("recordings to show").setInputFiles({ name: "night.c4rec", mimeType: "application/octet-stream", buffer: readFileSync(file) });
  await page.getByRole("article").first().waitFor();
  assert.equal(new URL(page.url()).hash.split("?")[0], new URL(link).hash.split("?")[0]);
  assert.deepEqual(await complaintsOf(page), []);
}));
