"""deploy/kubernetes without a cluster: every reference resolves, and the roles are what the driver asks for, no more.
With kubectl or kustomize at hand (Debian: kubernetes-client), what they make of it, and of the overlay of the docs.

kubernetes_manifests_test.py SOURCE_DIR. Skipped (77) without PyYAML (Debian: python3-yaml).
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("there is no PyYAML; install python3-yaml")
    sys.exit(77)

SOURCE = pathlib.Path(sys.argv[1])
BASE = SOURCE / "deploy" / "kubernetes"
WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet")


def load():
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    objects = {}
    for name in kustomization["resources"]:
        for item in yaml.safe_load_all((BASE / name).read_text()):
            meta = item["metadata"]
            key = (item["kind"], meta.get("namespace", ""), meta["name"])
            assert key not in objects, f"{key} is there twice"
            objects[key] = item
    for made in kustomization["configMapGenerator"]:
        objects["ConfigMap", made["namespace"], made["name"]] = {
            "data": {file: (BASE / file).read_text() for file in made["files"]}}
    return kustomization, objects


KUSTOMIZATION, OBJECTS = load()
PODS = {key: item["spec"]["template"] for key, item in OBJECTS.items() if key[0] in WORKLOADS}


def calls_of(rules):
    return [f"{group or 'core'} {resource} {verb}" for rule in rules for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"]]


class Manifests(unittest.TestCase):
    def test_every_file_is_listed(self):
        self.assertEqual({path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"},
                         set(KUSTOMIZATION["resources"]))

    def test_what_is_referred_to_is_there(self):
        secrets = set(re.findall(r"create secret generic (\S+)", (SOURCE / "docs" / "kubernetes.md").read_text()))
        namespaces = {name for kind, _, name in OBJECTS if kind == "Namespace"}
        for (kind, space, name), item in OBJECTS.items():
            self.assertIn(space, namespaces | {"", "default", "training"}, name)
        for (kind, space, name), pod in PODS.items():
            spec = pod["spec"]
            with self.subTest(kind=kind, name=name):
                self.assertIn(("ServiceAccount", space, spec["serviceAccountName"]), OBJECTS)
                volumes = {volume["name"] for volume in spec.get("volumes", [])}
                volumes |= {claim["metadata"]["name"]
                            for claim in OBJECTS[kind, space, name]["spec"].get("volumeClaimTemplates", [])}
                mounts = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
                self.assertEqual(volumes, mounts)
                for volume in spec.get("volumes", []):
                    if "secret" in volume:
                        self.assertIn(volume["secret"]["secretName"], secrets)
                    if "configMap" in volume:
                        self.assertIn(("ConfigMap", space, volume["configMap"]["name"]), OBJECTS)
                selector = OBJECTS[kind, space, name]["spec"]["selector"]["matchLabels"]
                self.assertLessEqual(selector.items(), pod["metadata"]["labels"].items())
                if kind == "StatefulSet":
                    self.assertIn(("Service", space, OBJECTS[kind, space, name]["spec"]["serviceName"]), OBJECTS)

    def test_services_have_pods_and_ports(self):
        for (kind, space, name), item in OBJECTS.items():
            if kind != "Service":
                continue
            behind = [pod for (_, its, _), pod in PODS.items()
                      if its == space and item["spec"]["selector"].items() <= pod["metadata"]["labels"].items()]
            self.assertEqual(len(behind), 1, name)
            ports = {port["name"]: port["containerPort"] for port in behind[0]["spec"]["containers"][0]["ports"]}
            for port in item["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])

    def test_settings_are_known_and_lead_somewhere(self):
        knobs = (SOURCE / "docs" / "knobs.md").read_text()
        for (_, space, name), pod in PODS.items():
            container = pod["spec"]["containers"][0]
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            for setting in container["env"]:
                self.assertIn(f"| `{setting['name']}` |", knobs)
                value = setting["value"]
                service = re.fullmatch(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc:(\d+)", value)
                if service:
                    ports = OBJECTS["Service", service[2], service[1]]["spec"]["ports"]
                    self.assertIn(int(service[3]), [port["port"] for port in ports])
                elif value.startswith("/"):
                    self.assertTrue(any(path == value or path.startswith(value + "/") or value.startswith(path + "/")
                                        for path in mounts), f"{name}: {value} is on no volume")

    def test_the_roles_are_what_the_driver_asks_for(self):
        recovery = json.loads(OBJECTS["ConfigMap", "c4-system", "c4-recovery"]["data"]["recovery.json"])
        self.assertEqual(recovery["mode"], "dry-run")
        job = recovery["driver"]["kubernetes"]["namespace"]
        granted = []
        for (kind, space, name), item in OBJECTS.items():
            if kind not in ("RoleBinding", "ClusterRoleBinding"):
                continue
            role = item["roleRef"]
            self.assertEqual(item["subjects"], [{"kind": "ServiceAccount", "name": "c4d", "namespace": "c4-system"}])
            self.assertIn(("ServiceAccount", "c4-system", "c4d"), OBJECTS)
            rules = OBJECTS[role["kind"], space, role["name"]]["rules"]
            where = {"": "cluster", job: "job", "c4-system": "master"}.get(space, space)
            granted += [f"{where} {call}" for call in calls_of(rules)]
        asked = [line for line in (SOURCE / "tests" / "data" / "kubernetes_calls.txt").read_text().splitlines()
                 if line and not line.startswith("#")]
        self.assertEqual(sorted(granted), sorted(asked))
        roles = [key for key in OBJECTS if key[0] in ("Role", "ClusterRole")]
        bindings = [key for key in OBJECTS if key[0] in ("RoleBinding", "ClusterRoleBinding")]
        self.assertEqual(len(roles), len(bindings), "a role that nobody has")

    def test_pods_may_do_no_more_than_they_need(self):
        for (kind, _, name), pod in PODS.items():
            spec = pod["spec"]
            with self.subTest(name=name):
                security = spec["containers"][0]["securityContext"]
                self.assertTrue(security["readOnlyRootFilesystem"])
                self.assertFalse(security["allowPrivilegeEscalation"])
                self.assertNotIn("privileged", security)
                self.assertEqual(security["capabilities"]["drop"], ["ALL"])
                agent = kind == "DaemonSet"
                self.assertEqual(security["capabilities"].get("add", []),
                                 ["NET_RAW", "SYS_PTRACE", "DAC_READ_SEARCH"] if agent else [])
                self.assertEqual((spec.get("hostNetwork", False), spec.get("hostPID", False)), (agent, agent))
                self.assertEqual(spec.get("automountServiceAccountToken", True), name == "c4d")
                host = {volume["name"]: volume["hostPath"]["path"]
                        for volume in spec["volumes"] if "hostPath" in volume}
                writable = {host[mount["name"]] for mount in spec["containers"][0]["volumeMounts"]
                            if mount["name"] in host and not mount.get("readOnly")}
                self.assertEqual(writable, {"/dev/shm/c4"} if agent else set())

    def built(self, folder):
        """What kustomize makes of it; None: its version does not know a word of it."""
        if shutil.which("kubectl"):
            tool = ["kubectl", "kustomize"]
        elif shutil.which("kustomize"):
            tool = ["kustomize", "build"]
        else:
            self.skipTest("there is neither kubectl nor kustomize")
        said = subprocess.run([*tool, str(folder)], capture_output=True, text=True, check=False)
        if re.search("unknown field|cannot unmarshal", said.stderr):
            return None
        self.assertEqual(said.returncode, 0, said.stderr)
        return list(yaml.safe_load_all(said.stdout))

    def test_kustomize_makes_of_it_what_is_there(self):
        built = self.built(BASE)
        self.assertEqual(sorted(item["kind"] for item in built), sorted(kind for kind, _, _ in OBJECTS))
        maps = [item["metadata"]["name"] for item in built if item["kind"] == "ConfigMap"]
        pods = [item for item in built if item["kind"] == "StatefulSet"]
        self.assertIn({"name": "recovery", "configMap": {"name": maps[0]}},
                      pods[0]["spec"]["template"]["spec"]["volumes"])

    def test_the_overlay_of_the_docs(self):
        docs = (SOURCE / "docs" / "kubernetes.md").read_text()
        text = re.search(r"```yaml\n(# kustomization.yaml\n.*?)```", docs, re.S)[1]
        with tempfile.TemporaryDirectory() as work:
            shutil.copytree(BASE, pathlib.Path(work) / "base")
            overlay = pathlib.Path(work) / "overlay"
            overlay.mkdir()
            (overlay / "kustomization.yaml").write_text(text.replace("github-or-path/deploy/kubernetes", "../base"))
            built = self.built(overlay)
        if built is None:
            self.skipTest("this kubectl is too old for patches with a target; 1.21 knows them")
        pods = {item["metadata"]["name"]: item["spec"]["template"]["spec"]
                for item in built if item["kind"] in WORKLOADS}
        self.assertEqual({spec["containers"][0]["image"] for spec in pods.values()},
                         {"registry.example.com/c4-agent:0.1.0", "registry.example.com/c4-masters:0.1.0"})
        self.assertIn({"name": "C4D_JOB", "value": "my-job"}, pods["c4d"]["containers"][0]["env"])
        self.assertEqual(pods["c4a"]["nodeSelector"], {"nvidia.com/gpu.present": "true"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
