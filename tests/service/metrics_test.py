"""What the daemons serve at /metrics, the rules of deploy/prometheus and the dashboards of deploy/grafana, held against
each other: names, Prometheus' own checks (promtool), and a real Prometheus that reads a real job with a stopped rank.

metrics_test.py SOURCE_DIR BUILD_BIN_DIR. What needs promtool or prometheus (Debian: prometheus) is skipped without.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

SOURCE = pathlib.Path(sys.argv[1]).resolve()
BIN = pathlib.Path(sys.argv[2]).resolve()
RULES = SOURCE / "deploy/prometheus/c4.rules.yaml"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((SOURCE / "deploy/grafana").glob("*.json"))}
NAME = re.compile(r"\bc4[adp]_[a-z0-9_]+\b")
# Series that a healthy loopback job has none of: they begin with the first fault of hardware.
ONLY_WITH_FAULTS = {"c4a_hardware_events_total"}


def declared():
    """{name: type} of what the daemons' sources make."""
    found = {}
    for folder in ("c4a", "c4d_master", "c4p_master"):
        for path in sorted((SOURCE / folder).rglob("*.cc")):
            text = path.read_text()
            constants = dict(re.findall(r'constexpr char (\w+)\[\] = "(c4[adp]_\w+)"', text))
            for kind, name in re.findall(r'(Counter|Gauge|Histogram)\(\s*("c4[adp]_\w+"|k\w+)', text):
                name = name.strip('"') if name.startswith('"') else constants.get(name, "")
                if name:
                    found[name] = kind.lower()
    return found


DECLARED = declared()


def base(name):
    for end in ("_bucket", "_sum", "_count"):
        if name.endswith(end) and DECLARED.get(name[:-len(end)]) == "histogram":
            return name[:-len(end)]
    return name


def queries(board):
    for panel in board["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], re.sub(r"\$(master|path_master)\b", ".*", text)


def promtool(*words, **more):
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False, timeout=60, **more)


HAVE_PROMTOOL = shutil.which("promtool") is not None
HAVE_PROMETHEUS = shutil.which("prometheus") is not None


class Names(unittest.TestCase):
    def test_the_page_has_exactly_what_the_sources_make(self):
        page = set(re.findall(r"^\| `(c4[adp]_\w+)`", (SOURCE / "docs/metrics.md").read_text(), re.MULTILINE))
        self.assertEqual(page, set(DECLARED))

    def test_counters_end_in_total_and_nothing_else_does(self):
        for name, kind in DECLARED.items():
            self.assertEqual(name.endswith("_total"), kind == "counter", name)
            self.assertNotRegex(name, r"_(ms|us|ns|milliseconds|minutes|kib|mib|percent)(_|$)", "base units")

    def test_rules_and_panels_name_what_there_is(self):
        texts = {"the rules": RULES.read_text()}
        for name, board in BOARDS.items():
            texts[name] = json.dumps(board)
        for where, text in texts.items():
            names = set(NAME.findall(text))
            self.assertTrue(names, where)
            for name in names:
                self.assertIn(base(name), DECLARED, f"{where} ask for what nobody serves")


class Boards(unittest.TestCase):
    def test_there_are_three_and_each_is_whole(self):
        self.assertEqual(set(BOARDS), {"job", "fleet", "network"})
        self.assertEqual(len({board["uid"] for board in BOARDS.values()}), 3)
        for name, board in BOARDS.items():
            self.assertGreaterEqual(board["schemaVersion"], 36, name)
            self.assertIsInstance(board["title"], str)
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            variables = {one["name"] for one in board["templating"]["list"]}
            self.assertIn("datasource", variables)
            cells = set()
            for panel in board["panels"]:
                self.assertIn(panel["type"], ("stat", "timeseries", "table"))
                self.assertTrue(panel["description"], panel["title"])
                self.assertEqual(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"})
                refs = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(refs), len(set(refs)), panel["title"])
                used = set(re.findall(r"\$(\w+)", " ".join(target["expr"] for target in panel["targets"])))
                self.assertLessEqual(used - {"__rate_interval"}, variables, panel["title"])
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
                mine = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                        for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(mine & cells, f"{panel['title']} lies over another panel")
                cells |= mine


@unittest.skipUnless(HAVE_PROMTOOL, "there is no promtool; install prometheus")
class Promtool(unittest.TestCase):
    def test_the_rules(self):
        for words in (("check", "rules", RULES), ("test", "rules", RULES.with_name("c4.rules.test.yaml")),
                      ("check", "config", RULES.with_name("prometheus.yaml"))):
            done = promtool(*words)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_query_of_a_panel_is_one(self):
        rules = [{"record": f"c4:panel{number}", "expr": query} for number, query in
                 enumerate(query for board in BOARDS.values() for _, query in queries(board))]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "panels.yaml"  # JSON is YAML
            path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
            done = promtool("check", "rules", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rules[0]["expr"] = "sum(c4d_agents{"
            path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
            self.assertNotEqual(promtool("check", "rules", path).returncode, 0, "the check cannot fail")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


def wait_for(what, seconds, ask):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = ask()
        except OSError:
            answer = None
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError(f"no {what} within {seconds} s")


class RealJob(unittest.TestCase):
    """A job of four ranks, one of which is stopped once it runs."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="c4-metrics-")
        cls.addClassCleanup(cls.folder.cleanup)
        path = pathlib.Path(cls.folder.name)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("C4", "NCCL"))}
        cls.output = open(path / "out", "w+", encoding="utf-8")
        cls.addClassCleanup(cls.output.close)
        cls.job = subprocess.Popen(
            [BIN / "c4", "run", "-n", "4", "--job", "metrics", "--c4p", "--run-dir", path / "run", "--log-dir", path / "log",
             "--timeout", "150", "--", BIN / "hybrid_trainer", "--seconds", "140"], stdin=subprocess.DEVNULL,
            stdout=cls.output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        cls.addClassCleanup(cls.end)
        cls.address = {daemon: wait_for(f"address of {daemon}", 60, lambda daemon=daemon: cls.find(path, daemon))
                       for daemon in ("c4a", "c4d_master", "c4p_master")}
        wait_for("processes at the master", 60, lambda: re.search(r"^c4d_processes 4$", cls.served("c4d_master"), re.M))

    @classmethod
    def end(cls):
        cls.job.send_signal(signal.SIGTERM)
        try:
            cls.job.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(cls.job.pid, signal.SIGKILL)
            cls.job.wait()

    @staticmethod
    def find(path, daemon):
        for log in path.rglob(f"{daemon}.log"):
            found = re.findall(r"(?:http://|HTTP on )([0-9.]+:[0-9]+)", log.read_text())
            if found:
                return found[-1]
        return None

    @classmethod
    def served(cls, daemon):
        return get(f"http://{cls.address[daemon]}/metrics")

    def test_1_names_and_types_are_those_of_the_sources(self):
        seen = {}
        for daemon in self.address:
            text = self.served(daemon)
            for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M):
                seen[name] = kind
                self.assertRegex(text, rf"(?m)^# HELP {name} \S.{{8,}}$")
        for name, kind in seen.items():
            self.assertEqual(DECLARED.get(name), kind, name)
        asked = {base(name) for board in BOARDS.values() for name in NAME.findall(json.dumps(board))}
        asked |= {base(name) for name in NAME.findall(RULES.read_text())}
        self.assertLessEqual(asked - ONLY_WITH_FAULTS - {"c4d_verdict_info"}, set(seen), "asked for and not served")

    @unittest.skipUnless(HAVE_PROMTOOL, "there is no promtool; install prometheus")
    def test_2_promtool_has_nothing_to_say(self):
        for daemon in self.address:
            done = promtool("check", "metrics", input=self.served(daemon))
            self.assertEqual((done.returncode, done.stderr), (0, ""), f"{daemon}: {done.stdout}{done.stderr}")

    def test_3_a_stopped_rank_is_a_series_and_the_boards_show_it(self):
        server = self.prometheus() if HAVE_PROMETHEUS else None
        status = json.loads(subprocess.run([BIN / "c4", "status", "--json", "--job", "metrics", "--run-dir",
                                            pathlib.Path(self.folder.name) / "run"], capture_output=True, text=True,
                                           check=True, timeout=30).stdout)
        pid = next(rank["pid"] for rank in status["ranks"] if rank["rank"] == 2)
        os.kill(pid, signal.SIGSTOP)
        try:
            line = wait_for("confirmed verdict", 30, lambda: re.search(
                r'^c4d_verdict_info\{.*state="confirmed".*\} 1$', self.served("c4d_master"), re.M)).group(0)
            for label in ('job="metrics"', 'culprit="rank 2"', 'syndrome="non-communication hang"'):
                self.assertIn(label, line)
            if server is None:
                self.skipTest("there is no prometheus; the boards were not shown anything")
            self.all_panels_have_data(server)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for("end of the series", 60,
                 lambda: "c4d_verdict_info{" not in self.served("c4d_master"))

    def prometheus(self):
        path = pathlib.Path(self.folder.name)
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": daemon, "honor_labels": True,
                                      "static_configs": [{"targets": [address]}]}
                                     for daemon, address in self.address.items()]}
        (path / "prometheus.yaml").write_text(json.dumps(config))
        address = f"127.0.0.1:{free_port()}"
        log = open(path / "prometheus.log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(["prometheus", f"--config.file={path / 'prometheus.yaml'}",
                                    f"--storage.tsdb.path={path / 'tsdb'}", f"--web.listen-address={address}"],
                                   stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for("Prometheus", 60, lambda: "Ready" in get(f"http://{address}/-/ready"))
        return address

    def ask(self, server, query):
        reply = json.loads(get(f"http://{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
        return reply["data"]["result"]

    def all_panels_have_data(self, server):
        wait_for("C4VerdictConfirmed in Prometheus", 30, lambda: self.ask(
            server, 'ALERTS{alertname="C4VerdictConfirmed",alertstate="firing",job="metrics"}'))
        missing = {}
        for name, board in BOARDS.items():
            for title, query in queries(board):
                if not ONLY_WITH_FAULTS & set(NAME.findall(query)):
                    missing[f"{name}: {title}: {query}"] = query
        end = time.monotonic() + 30
        while missing and time.monotonic() < end:
            missing = {where: query for where, query in missing.items() if not self.ask(server, query)}
            time.sleep(0.5)
        self.assertEqual(list(missing), [], "panels without data")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
