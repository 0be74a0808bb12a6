// What the browser tests share: programs of the build as a user starts them, a browser, a proxy under a path.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const BIN = join(process.env.C4_BUILD_DIR ?? join(ROOT, "build"), "bin");
const RECORDINGS = join(ROOT, "tests/data/recordings");

export const recordings = () =>
  readdirSync(RECORDINGS).filter((name) => name.endsWith(".c4rec")).sort()
    .map((name) => ({ id: name.replace(".c4rec", ""), file: join(RECORDINGS, name) }));

// What the last confirmed line of NAME.expected blames: ["communication slow", "nic", "host7", ...].
export function blamedIn(id) {
  const lines = readFileSync(join(RECORDINGS, `${id}.expected`), "utf8").split("\n");
  const line = lines.filter((text) => text.includes("confirmed")).at(-1);
  const [, syndrome, culprit] = /confirmed ([^:]+): (.*)$/.exec(line);
  const [, kind, number, host] = /^(\w+)(?: (\d+))?(?: on (\S+))?/.exec(culprit);
  return { syndrome, kind, number, host: host?.replace(",", "") };
}

export class Programs {
  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "c4-web-"));
    this.children = [];
  }

  // Starts it and waits for that in its output; gives the match and the child.
  start(name, args, wanted) {
    const child = spawn(join(BIN, name), args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, C4_RUN_DIR: join(this.dir, "run"), C4_LOG_DIR: join(this.dir, "logs") },
    });
    this.children.push(child);
    let said = "";
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${name} did not say ${wanted}: ${said}`)), 60_000);
      const hear = (data) => {
        said += data;
        const found = wanted.exec(said);
        if (!found) return;
        clearTimeout(timer);
        resolve({ child, found });
      };
      child.stdout.on("data", hear);
      child.stderr.on("data", hear);
      child.on("exit", (code) => {
        clearTimeout(timer);
        reject(new Error(`${name} ended with ${code}: ${said}`));
      });
    });
  }

  // Runs it to its end.
  done(name, args) {
    const child = spawn(join(BIN, name), args, {
      stdio: "ignore", env: { ...process.env, C4_RUN_DIR: join(this.dir, "run"), C4_LOG_DIR: join(this.dir, "logs") },
    });
    return new Promise((resolve, reject) => child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${name} ended with ${code}`)))));
  }

  // The process of that rank below a launcher.
  childOf(launcher, program, rank) {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
        if (Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) !== launcher) continue;
        if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(program)) continue;
        if (readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").includes(`RANK=${rank}`)) return Number(pid);
      } catch {
        // It has ended meanwhile.
      }
    }
    throw new Error(`no ${program} of rank ${rank} below ${launcher}`);
  }

  async page(args = [], listen = "127.0.0.1:0", logs = "logs") {
    const { child, found } = await this.start(
      "c4", ["page", "--listen", listen, "--log-dir", join(this.dir, logs), ...args], /at (http:\S+)/);
    return { child, url: found[1] };
  }

  // A master of a job that nobody reports on: what matters here is its name, and whether it is there.
  async master(job, http = "127.0.0.1:0") {
    return (await this.servedMaster(job, http)).child;
  }

  // With the address of its own page.
  async servedMaster(job, http = "127.0.0.1:0") {
    const { child, found } = await this.start(
      "c4d_master", ["--job", job, "--listen", "127.0.0.1:0", "--http-address", http, "--c4p", "off",
        "--directory", join(this.dir, "run/masters"), "--store", join(this.dir, `${this.children.length}.db`),
        "--audit", join(this.dir, `${this.children.length}.audit`)], /serving job.*HTTP on (\S+?),/);
    return { child, url: `http://${found[1]}/` };
  }

  async pathMaster(args = []) {
    const { child, found } = await this.start(
      "c4p_master", ["--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--directory", join(this.dir, "run/masters"),
        "--store", join(this.dir, `${this.children.length}.db`), ...args], /serving paths.*HTTP on (\S+?),/);
    return { child, url: `http://${found[1]}/` };
  }

  static async end(child, signal = "SIGTERM") {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.on("exit", resolve));
    child.kill(signal);
    await ended;
  }

  async endAll() {
    for (const child of this.children) await Programs.end(child);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

export async function openBrowser() {
  const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((path) => existsSync(path));
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"] });
}

// A page whose every complaint is kept.
export async function openPage(browser, { theme = "light", width = 1280, height = 900, ...more } = {}) {
  const context = await browser.newContext({
    colorScheme: theme, viewport: { width, height }, locale: "en-GB", timezoneId: "Europe/Berlin", ...more,
  });
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("console", (message) => {
    // Of requests that the page answers for itself: a part that a recording lacks, a server that is away.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) page.faults.push(message.text());
  });
  page.on("dialog", (dialog) => {
    page.faults.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return page;
}

// Passes PREFIX/... on to `to`, as a proxy under a path does, and answers nothing else.
export async function proxyUnder(prefix, to) {
  const target = new URL(to);
  const server = createServer((asked, answer) => {
    if (!asked.url.startsWith(prefix)) {
      answer.writeHead(404).end("outside");
      return;
    }
    const passed = httpRequest(
      { host: target.hostname, port: target.port, method: asked.method, path: asked.url.slice(prefix.length - 1),
        headers: { ...asked.headers, host: target.host } },
      (reply) => {
        answer.writeHead(reply.statusCode, reply.headers);
        reply.pipe(answer);
      });
    passed.on("error", () => answer.writeHead(502).end());
    asked.pipe(passed);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}${prefix}`, close: () => server.close() };
}
