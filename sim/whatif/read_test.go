package whatif

import (
	"fmt"
	"strings"
	"testing"
)

// pod is the part of a template that every controller here has.
const pod = `
    metadata: {labels: {app: a}}
    spec: {containers: [{name: c, image: "registry.test/c:1"}]}
`

func controller(kind, fields string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: a}\nspec:\n"+
		"  selector: {matchLabels: {app: a}}\n%s  template:%s", kind, fields, pod)
}

func read(t *testing.T, text string) *Input {
	t.Helper()
	in, err := Read([]File{{"a.yaml", []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func podNames(w *Workload) string {
	var names []string
	for i := range w.Pods {
		names = append(names, w.Pods[i].Name)
	}
	return strings.Join(names, " ")
}

func TestWorkloadsBecomePods(t *testing.T) {
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  %s\n  template:\n" +
		"    spec: {restartPolicy: Never, containers: [{name: c, image: \"registry.test/c:1\"}]}\n"
	for _, test := range []struct{ manifest, want string }{
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" +
			"spec: {containers: [{name: c, image: \"registry.test/c:1\"}]}\n", "a"},
		{controller("Deployment", "  replicas: 2\n"), "a-k28nfsgqnh-9wmpq a-k28nfsgqnh-fpgls"},
		{controller("Deployment", ""), "a-k28nfsgqnh-9wmpq"},
		{controller("ReplicaSet", "  replicas: 2\n"), "a-2p9p8 a-7g4lb"},
		{controller("StatefulSet", "  replicas: 3\n"), "a-0 a-1 a-2"},
		{controller("DaemonSet", ""), "a-zbbwx"},
		{fmt.Sprintf(job, "parallelism: 2"), "a-pq8dr a-th29s"},
		{fmt.Sprintf(job, "parallelism: 3\n  completions: 1"), "a-pq8dr"},
		{fmt.Sprintf(job, "parallelism: 2\n  completionMode: Indexed\n  completions: 2"),
			"a-0-pq8dr a-1-th29s"},
		{controller("Deployment", "  replicas: 0\n"), ""},
	} {
		in := read(t, test.manifest)
		if got := podNames(in.Workloads[0]); got != test.want {
			t.Errorf("%s: pods %q, want %q", test.manifest, got, test.want)
		}
	}
}

func TestStatefulSetPodsHaveTheirIdentity(t *testing.T) {
	in := read(t, controller("StatefulSet", "  replicas: 2\n  serviceName: db\n"+
		"  volumeClaimTemplates: [{metadata: {name: data}}]\n"))
	spec := in.Workloads[0].Pods[1].spec
	if spec.Hostname != "a-1" || spec.Subdomain != "db" {
		t.Errorf("hostname %q, subdomain %q, want a-1, db", spec.Hostname, spec.Subdomain)
	}
	if len(spec.Volumes) != 1 || spec.Volumes[0].EmptyDir == nil {
		t.Errorf("volumes %v, want an emptyDir volume for the claim", spec.Volumes)
	}
	if len(in.Notes) != 1 || !strings.Contains(in.Notes[0], "volumes by claim") {
		t.Errorf("notes %q, want one about volumes by claim", in.Notes)
	}
}

func TestFilesMayHaveListsJSONAndOtherObjects(t *testing.T) {
	list := `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "namespace": "shop"},
		 "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
		{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}},
		{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "y"}}]}`
	in, err := Read([]File{{"a.json", []byte(list)},
		{"b.yaml", []byte("# first\n---\n" + controller("DaemonSet", "") + "---\n")}})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(in.Workloads, len(in.Objects), in.Notes)
	if want := "[shop/Pod/b DaemonSet/a] 2 [ignored: Service (2)]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReadRejects(t *testing.T) {
	deployment := controller("Deployment", "")
	replace := func(old, new string) string { return strings.Replace(deployment, old, new, 1) }
	for _, test := range []struct{ manifest, want string }{
		{"", "a.yaml: want at least one of Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, " +
			"have none"},
		{"a: [", "a.yaml: document 1: line 1: did not find expected node content"},
		{"[]", "a.yaml: document 1: want an object with apiVersion, kind and metadata"},
		{"apiVersion: v1", "a.yaml: document 1: kind: want a kind, have none"},
		{"kind: Pod", "a.yaml: document 1 (Pod): apiVersion: want a version, have none"},
		{deployment + "---\n" + replace("image", "imag"),
			"a.yaml: document 2 (Deployment a): unknown field spec.template.spec.containers[0].imag"},
		{deployment + "---\n" + deployment,
			"document 2 (Deployment a): metadata.name: another document has the same Deployment"},
		{replace("apps/v1", "apps/v1beta1"), "apiVersion: want apps/v1, have \"apps/v1beta1\""},
		{replace("{name: a}", "{}"), "metadata.name: want a name, have none"},
		{replace("{name: a}", "{name: A}"), "metadata.name: \"A\": a lowercase RFC 1123 subdomain"},
		{controller("Deployment", "  replicas: x\n"),
			"spec.replicas: want a number (int32), have string"},
		{controller("Deployment", "  replicas: -1\n"), "spec.replicas: want 0 or more, have -1"},
		{controller("Deployment", "  replicas: 111\n"),
			"spec.replicas: want at most 110, the pods of one node, have 111"},
		{controller("DaemonSet", "") + "---\n" + controller("StatefulSet", "  replicas: 110\n"),
			"spec.replicas: with this there are 111 pods, one node takes 110"},
		{replace("  selector: {matchLabels: {app: a}}\n", ""), "spec.selector: want one, have none"},
		{replace("{matchLabels: {app: a}}", "{matchLabels: {app: b}}"),
			"spec.selector: it does not match spec.template.metadata.labels"},
		{replace("containers:", "restartPolicy: Never, containers:"),
			"spec.template.spec.restartPolicy: want Always, have \"Never\""},
		{"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:" + pod,
			"spec.template.spec.restartPolicy: want Never or OnFailure, have \"\""},
		{replace("[{name: c, image: \"registry.test/c:1\"}]", "[]"),
			"spec.template.spec.containers: want at least one, have none"},
		{replace("\"registry.test/c:1\"", "\"\""),
			"spec.template.spec.containers[0].image: Required value: a container has an image"},
		{replace("containers:", "terminationGracePeriodSeconds: -1, containers:"),
			"spec.template.spec.terminationGracePeriodSeconds: Invalid value: -1"},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndta: {}\n", "unknown field"},
		{"apiVersion: v1\nkind: Secret\nmetadata: {}\n", "(Secret): metadata.name: want a name"},
		{controller("StatefulSet", "") + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a-0}\n" +
			"spec: {containers: [{name: c, image: \"registry.test/c:1\"}]}\n",
			"metadata.name: its pod a-0 has the name of one of StatefulSet/a"},
	} {
		_, err := Read([]File{{"a.yaml", []byte(test.manifest)}})
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", test.manifest, err, test.want)
		}
	}
}

func TestNodeAndBehaviourReject(t *testing.T) {
	in := read(t, controller("Deployment", ""))
	const header = "apiVersion: sim.seedlet.dev/v1alpha1\nkind: Behaviour\n"
	for _, test := range []struct {
		read       func(File) error
		text, want string
	}{
		{in.ReadNode, "apiVersion: v1\nkind: Pod\n", "kind: want Node or KubeletConfiguration"},
		{in.ReadNode, "apiVersion: v1\nkind: Node\nstatus: {capacity: {cpu: \"0\"}}\n",
			"status.capacity[cpu]: want at least 1, have 0"},
		{in.ReadNode, "apiVersion: v1\nkind: Node\nstatus: {capacity: {memory: 1Ki}}\n",
			"status.capacity[memory]: want at least 64Mi, have 1Ki"},
		{in.ReadNode, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
			"maxPod: 3\n", "maxPod"},
		{in.ReadBehaviour, "", "want apiVersion sim.seedlet.dev/v1alpha1, kind Behaviour"},
		{in.ReadBehaviour, header + "containers: [{stopTake: 1s}]",
			"f.yaml: unknown field containers[0].stopTake"},
		{in.ReadBehaviour, header + "containers: [{stopTakes: x}]", "stopTakes: want "},
		{in.ReadBehaviour, header + "containers: [{workload: b}]",
			"f.yaml: containers[0].workload: no workload is called \"b\""},
		{in.ReadBehaviour, header + "containers: [{container: b}]",
			"containers[0].container: no container is called \"b\""},
		{in.ReadBehaviour, header + "containers: [{ignoresTerm: true, stopTakes: 1s}]",
			"containers[0].ignoresTerm: want neither"},
		{in.ReadBehaviour, header + "containers: [{exitCode: 256}]",
			"containers[0].exitCode: want 0 to 255, have 256"},
		{in.ReadBehaviour, header + "containers: [{exitCode: 1}]", "containers[0].exitCode: want runs"},
	} {
		err := test.read(File{"f.yaml", []byte(test.text)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.text, err, test.want)
		}
	}
}
