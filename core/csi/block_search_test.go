package csi

import "testing"

// Two persistent volumes may have one handle: the volume stays staged, and its devices bound, while
// a pod of either uses it, also for an agent that finds both on the disk.
func TestTwoVolumesOfOneHandleAreFound(t *testing.T) {
	n := newReady(t)
	n.restart()
	n.register()
	put := func(pv, uid string) {
		for _, dir := range []string{"/k", "/k/plugins", "/k/plugins/kubernetes.io",
			"/k/plugins/kubernetes.io/csi", "/k/plugins/kubernetes.io/csi/volumeDevices", blocks + pv,
			blocks + pv + "/data", blocks + pv + "/dev", blocks + "publish", blocks + "publish/" + pv,
			blocks + "staging", blocks + "staging/" + pv} {
			n.files[dir] = "/"
		}
		data := n.node.stagingData(&Volume{Driver: driverName, Handle: "h1", Device: pv})
		n.files[blocks+pv+"/data/vol_data.json"] = string(data)
		n.files[blocks+"publish/"+pv+"/"+uid] = "device"
		n.mount(blocks + "publish/" + pv + "/" + uid)
		n.files[blocks+pv+"/dev/"+uid] = "x"
		n.mount(blocks + pv + "/dev/" + uid)
		n.heldDevices[blocks+pv+"/dev/"+uid] = true
	}
	put("pv-1", "a")
	put("pv-2", "b")
	n.pods["b"] = true
	n.restart()
	u := device("b")
	u.SpecName, u.HasRun = "pv-2", true
	n.pods["b"] = true
	n.node.Use(u, n.now)
	n.register()
	if n.node.HoldsPod("a") || !n.node.HoldsPod("b") {
		t.Errorf("holds the pods: a %v, b %v; want b alone", n.node.HoldsPod("a"),
			n.node.HoldsPod("b"))
	}
	if !n.isMounted(blocks + "pv-2/dev/b") {
		t.Error("the device of b is not bound any more")
	}
	for _, call := range n.calls {
		if call == "unstage "+blocks+"staging/pv-1" || call == "unstage staging" {
			t.Errorf("the volume was unstaged while b uses it: %q", n.calls)
		}
	}
}
