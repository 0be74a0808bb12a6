// What the operator's page costs with a job of 1,024 ranks: until the first useful view, script and layout of a frame, bytes, and
// what pages that are open cost the job's master. Needs what `make test-web` installs.
//
//   node benchmarks/page/page_bench.mjs [HOSTS [RANKS-PER-HOST]]
//
// agents_load plays the agents of a real c4d_master, whose own page is looked at. The processor is another program's as well: the
// master's time is its own, from /proc.
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { get } from "node:http";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { openBrowser, openPage, Programs, ROOT } from "../../tests/web/support.mjs";

const HOSTS = Number(process.argv[2] ?? 128);
const PER_HOST = Number(process.argv[3] ?? 8);
const WARM_UP_S = 15;
const MEASURED_S = 8;
const ROUNDS = 5;
const TICKS = 100; // of /proc, a second
const sleep = (s) => new Promise((resolve) => setTimeout(resolve, s * 1000));
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

function processorS(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

async function shareOf(pid, seconds) {
  const before = processorS(pid);
  await sleep(seconds);
  return (processorS(pid) - before) / seconds;
}

// Asks as a page does that shows what is wrong: the stream, and verdicts every five seconds.
function pageLike(url) {
  const stream = get(`${url}api/v1/events`, (reply) => reply.resume());
  stream.on("error", () => undefined);
  const ask = () => get(`${url}api/v1/verdicts?job=load&cleared=true`, (reply) => reply.resume()).on("error", () => undefined);
  ask();
  const timer = setInterval(ask, 5000);
  return () => {
    clearInterval(timer);
    stream.destroy();
  };
}

// Until the job's state and what is wrong with it can be read, nothing cached.
async function firstView(browser, url, view, wanted) {
  const page = await openPage(browser);
  const begun = Date.now();
  await page.goto(url + view);
  await page.locator(wanted).first().waitFor();
  const ms = Date.now() - begun;
  await page.context().close();
  return ms;
}

// Script and layout of the main thread for each step of the pointer, by a trace of Chromium.
async function frames(browser, url, view, wanted, step) {
  const page = await openPage(browser);
  await page.goto(url + view);
  await page.locator(wanted).first().waitFor();
  await sleep(1);
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { categories: "devtools.timeline,disabled-by-default-devtools.timeline", transferMode: "ReportEvents" });
  await step(page);
  const ended = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.end");
  await ended;
  await page.context().close();
  // The outermost ones: what is within them is counted with them.
  const work = new Set(["EventDispatch", "FireAnimationFrame", "TimerFire", "RunMicrotasks", "UpdateLayoutTree", "Layout", "FunctionCall"]);
  const spans = events.filter((event) => event.ph === "X" && work.has(event.name)).sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  const boundaries = events.filter((event) => event.name === "EventDispatch" && /^(mousemove|pointermove|input)$/.test(event.args?.data?.type ?? "")).map((event) => event.ts).sort((a, b) => a - b);
  const kept = boundaries.filter((ts, at) => at === 0 || ts - boundaries[at - 1] > 3000);
  const costs = kept.map(() => 0);
  const until = new Map();
  for (const { ts, dur = 0, tid } of spans) {
    if (ts < (until.get(tid) ?? 0)) continue;
    until.set(tid, ts + dur);
    const place = kept.findLastIndex((begin) => begin <= ts);
    if (place >= 0) costs[place] += dur / 1000;
  }
  return { steps: costs.length, median: median(costs), p95: [...costs].sort((a, b) => a - b)[Math.floor(costs.length * 0.95)] };
}

function compressed() {
  const folder = join(ROOT, "build/page-files");
  let bytes = 0;
  const walk = (at) => {
    for (const name of readdirSync(at)) {
      const path = join(at, name);
      if (statSync(path).isDirectory()) walk(path);
      else if (name !== ".made-of") bytes += gzipSync(readFileSync(path)).length;
    }
  };
  walk(folder);
  return bytes;
}

const programs = new Programs();
const browser = await openBrowser();
try {
  mkdirSync(join(programs.dir, "run/masters"), { recursive: true });
  const master = await programs.servedMaster("load");
  const address = JSON.parse(readFileSync(join(programs.dir, "run/masters", readdirSync(join(programs.dir, "run/masters"))[0]), "utf8"));
  const load = programs.done("agents_load", ["--master", address.address, "--pid", String(master.child.pid), "--job", "load",
    "--hosts", String(HOSTS), "--ranks-per-host", String(PER_HOST), "--warm-up", "5", "--seconds", "400"]);
  load.catch(() => undefined); // it is ended with the rest
  await sleep(WARM_UP_S);
  const url = master.url;
  const print = (name, value) => console.log(`${name.padEnd(64)} ${value}`);
  print("ranks, nodes", `${HOSTS * PER_HOST}, ${HOSTS}`);
  print("the page's files, compressed", `${(compressed() / 1000).toFixed(0)} KB (bar 500)`);

  // In turns, since the master's own work is not the same at all times.
  const shares = new Map([[0, []], [1, []], [50, []]]);
  for (let round = 0; round < ROUNDS; ++round) {
    for (const count of shares.keys()) {
      const pages = Array.from({ length: count }, () => pageLike(url));
      await sleep(1);
      shares.get(count).push(await shareOf(master.child.pid, MEASURED_S));
      pages.forEach((end) => end());
    }
  }
  const percent = (count) => `${shares.get(count).map((share) => (100 * share).toFixed(1)).join(", ")} %`;
  const more = (count) => (100 * (median(shares.get(count)) - median(shares.get(0)))).toFixed(1);
  print("the master without a page, of a core", percent(0));
  print("with one", `${percent(1)}: ${more(1)} more (bar 1)`);
  print("with fifty", `${percent(50)}: ${more(50)} more (bar 10)`);

  for (const [name, view, wanted] of [
    ["first view: what is wrong", "#/job/load", "main .ok, main article, main .fine"],
    ["first view: ranks by node", "#/job/load?part=ranks", "main table"],
    ["first view: matrix by node", "#/job/load?part=latency", "main canvas"],
  ]) {
    const times = [];
    for (let round = 0; round < 5; ++round) times.push(await firstView(browser, url, view, wanted));
    print(name, `${median(times)} ms, median of 5 (${Math.min(...times)} to ${Math.max(...times)}; bar 1000)`);
  }
  const moved = async (page) => {
    const box = await page.locator("main canvas").first().boundingBox();
    for (let at = 0; at < 150; ++at) {
      await page.mouse.move(box.x + 5 + ((at * 7) % (box.width - 10)), box.y + 5 + ((at * 3) % (Math.min(box.height, 600) - 10)));
      await sleep(0.02);
    }
  };
  const file = join(programs.dir, "load.c4rec");
  await programs.done("c4", ["record", "--job", "load", "-o", file, "--seconds", "10"]);
  const recorded = await programs.page(["--recording", file]);
  const scrubbed = async (page) => {
    await page.getByLabel("Moment of the recording").focus();
    for (let at = 0; at < 60; ++at) {
      await page.keyboard.press(at % 20 < 10 ? "ArrowLeft" : "ArrowRight");
      await sleep(0.05);
    }
  };
  for (const part of ["wrong", "latency"]) {
    const cost = await frames(browser, recorded.url, `#/job/load?part=${part}`, "main .scrubber", scrubbed);
    print(`script and layout a frame, scrubbing over a recording: ${part}`, `${cost.median.toFixed(2)} ms median, ${cost.p95.toFixed(2)} at 95 % of ${cost.steps} (bar 8)`);
  }
  for (const by of ["node", "rank"]) {
    const cost = await frames(browser, url, `#/job/load?part=latency&by=${by}`, "main canvas", moved);
    print(`script and layout a frame, moving over the matrix by ${by}`, `${cost.median.toFixed(2)} ms median, ${cost.p95.toFixed(2)} at 95 % of ${cost.steps} (bar 8)`);
  }
} finally {
  await browser.close();
  await programs.endAll();
}
