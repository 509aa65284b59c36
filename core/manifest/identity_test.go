package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestUIDDependsOnContent(t *testing.T) {
	uid := func(file, data, node string) string {
		t.Helper()
		pod, _, err := DecodeText(file, []byte(data), node)
		if err != nil {
			t.Fatal(err)
		}
		return string(pod.UID)
	}
	base := uid("/m/web.yaml", webManifest, "a")
	same := map[string]string{
		"a comment":   webManifest + "# the end\n",
		"a separator": "---\n" + webManifest,
		"the order of keys": strings.Replace(webManifest, "apiVersion: v1\nkind: Pod\n",
			"kind: Pod\napiVersion: v1\n", 1),
		"quotes": strings.Replace(webManifest, "nginx:1.27", `"nginx:1.27"`, 1),
	}
	for what, data := range same {
		if got := uid("/m/web.yaml", data, "a"); got != base {
			t.Errorf("%s changes the UID", what)
		}
	}
	others := map[string]string{
		"another file":  uid("/m/b.yaml", webManifest, "a"),
		"another node":  uid("/m/web.yaml", webManifest, "b"),
		"another image": uid("/m/web.yaml", strings.Replace(webManifest, "1.27", "1.28", 1), "a"),
		"another port":  uid("/m/web.yaml", strings.Replace(webManifest, "80}]", "81}]", 1), "a"),
	}
	seen := map[string]string{base: "the manifest"}
	for what, got := range others {
		if seen[got] != "" {
			t.Errorf("%s has the UID of %s", what, seen[got])
		}
		seen[got] = what
	}
}

// The UID of a manifest must not change between versions of the agent: another UID restarts the
// pod.
func TestUIDNeverChanges(t *testing.T) {
	pod := decode(t, webManifest)
	if want := "c298f47d347f92302e2e533818e14339"; string(pod.UID) != want {
		t.Errorf("UID %s, want %s: an upgrade would restart every static pod", pod.UID, want)
	}
	if got, want := ContainerHash(&pod.Spec.Containers[0]), "e220f96"; got != want {
		t.Errorf("hash %s, want %s: an upgrade would restart every container", got, want)
	}
}

func TestUIDFromManifest(t *testing.T) {
	pod := decode(t, strings.Replace(webManifest, "name: web\n", "name: web\n  uid: Mine.1\n", 1))
	if pod.UID != "Mine.1" || pod.Annotations[ConfigHashAnnotation] != "Mine.1" {
		t.Errorf("UID %q, annotations %v", pod.UID, pod.Annotations)
	}
}

func TestTolerationIsAddedOnce(t *testing.T) {
	pod := decode(t, webManifest+"  tolerations: [{operator: Exists, effect: NoExecute}]\n")
	if len(pod.Spec.Tolerations) != 1 {
		t.Errorf("tolerations %v", pod.Spec.Tolerations)
	}
}

func TestContainerHashDependsOnNameAndImage(t *testing.T) {
	base := v1.Container{Name: "a", Image: "b"}
	full := base
	full.Command, full.ImagePullPolicy = []string{"x"}, v1.PullAlways
	if ContainerHash(&base) != ContainerHash(&full) {
		t.Error("a field other than name and image changes the hash")
	}
	seen := map[string]v1.Container{ContainerHash(&base): base}
	for _, c := range []v1.Container{
		{Name: "a", Image: "c"}, {Name: "b", Image: "b"}, {Name: "ab"}, {Image: "ab"},
	} {
		hash := ContainerHash(&c)
		if _, twice := seen[hash]; twice || len(hash) != 8 {
			t.Errorf("hash %q of %v", hash, c)
		}
		seen[hash] = c
	}
}
