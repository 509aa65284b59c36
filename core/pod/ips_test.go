package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// podIPs returns the IPs of the pod's status.
func podIPs(p *Pod, nodeIPs ...string) []string {
	node := &Node{}
	node.IPs = nodeIPs
	ips := []string{}
	served := servedPod(p, node, "containerd").Status
	for _, ip := range served.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) > 0 && served.PodIP != ips[0] {
		return []string{"podIP " + served.PodIP, "podIPs[0] " + ips[0]}
	}
	return ips
}

// inspectedWith returns a pod whose sandbox has been inspected and has these IPs.
func inspectedWith(t *testing.T, ips ...string) *harness {
	t.Helper()
	p := runningPod(func(*v1.Container) {})
	p.Sandboxes[0].Inspected = false
	r := newHarness(t, p).planAt(0)
	network := &runtimeapi.PodSandboxNetworkStatus{}
	for i, ip := range ips {
		if i == 0 {
			network.Ip = ip
			continue
		}
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return r.complete("PodSandboxStatus", &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Network: network}}, nil)
}

// A pod has at most one IP of each family, that of the node's primary family first, in the regular
// form.
func TestPodIPsAreSortedAndCut(t *testing.T) {
	for _, c := range []struct{ node, ips, want []string }{
		{nil, []string{"fd00::5", "10.0.0.5"}, []string{"10.0.0.5", "fd00::5"}},
		{[]string{"192.0.2.1", "fd00::1"}, []string{"fd00::5", "10.0.0.5"},
			[]string{"10.0.0.5", "fd00::5"}},
		{[]string{"fd00::1"}, []string{"10.0.0.5", "fd00::5"}, []string{"fd00::5", "10.0.0.5"}},
		{nil, []string{"10.0.0.5", "10.0.0.6", "fd00::5", "fd00::6"},
			[]string{"10.0.0.5", "fd00::5"}},
		{nil, []string{"FD00:0:0::05", "010.000.0.5"}, []string{"10.0.0.5", "fd00::5"}},
		{nil, []string{"::ffff:10.0.0.5"}, []string{"10.0.0.5"}},
		{nil, []string{"10.0.0", "fd00::5%eth0", "10.0.0.7"}, []string{"10.0.0.7"}},
	} {
		r := inspectedWith(t, c.ips...)
		if diff := cmp.Diff(c.want, podIPs(r.pod, c.node...)); diff != "" {
			t.Errorf("%v on %v: %s", c.ips, c.node, diff)
		}
	}
}

// The IPs stay in the status when the sandbox is stopped: while the pod terminates, and afterwards.
// The next sandbox has others.
func TestPodIPsOfEndedPodAreKept(t *testing.T) {
	r := inspectedWith(t, "10.0.0.5")
	r.pod.Sandboxes[0].Ready = false
	r.planAt(time.Second)
	if diff := cmp.Diff([]string{"10.0.0.5"}, podIPs(r.pod)); diff != "" {
		t.Errorf("of a stopped sandbox: %s", diff)
	}
	r.pod.addSandbox(Sandbox{ID: "s1", Attempt: 1, Ready: true})
	if diff := cmp.Diff([]string{}, podIPs(r.pod)); diff != "" {
		t.Errorf("of a new sandbox: %s", diff)
	}
}

// A ready sandbox without an IP is replaced, with a back-off that grows while the next sandboxes
// have none either.
func TestSandboxWithoutIPIsReplaced(t *testing.T) {
	r := inspectedWith(t)
	r.pod.Spec.Spec.DNSPolicy, r.env.Node.Resolv.Loaded = v1.DNSDefault, true
	r.planAt(2 * time.Second).expectCall("StopContainer")
	if got := r.pod.ProblemOf(""); got == nil || got.Failures != 1 {
		t.Fatalf("problem %+v", got)
	}
	r.complete("StopContainer", &runtimeapi.StopContainerResponse{}, nil)
	r.pod.Containers[0].Inspected = Exited
	r.planAt(3*time.Second).complete("StopPodSandbox", &runtimeapi.StopPodSandboxResponse{}, nil)
	r.pod.StaleSince = time.Time{}
	r.planAt(4 * time.Second)
	r.complete("RunPodSandbox", &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s1"}, nil)
	without := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Network: &runtimeapi.PodSandboxNetworkStatus{}}}
	r.complete("PodSandboxStatus", without, nil)
	if got := r.pod.ProblemOf(""); got == nil || got.Failures != 2 {
		t.Errorf("problem %+v after the second sandbox without an IP", got)
	}
	r.pod.Sandboxes[1].Inspected = false
	r.planAt(time.Minute).complete("PodSandboxStatus", &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{
			Ip: "10.0.0.6"}}}, nil)
	if got := r.pod.ProblemOf(""); got != nil {
		t.Errorf("problem %+v although the sandbox has an IP", got)
	}
}

// With the node's network a pod has the node's IPs.
func TestSandboxOfHostNetworkNeedsNoIP(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.Spec.Spec.HostNetwork, p.Sandboxes[0].Inspected = true, false
	r := newHarness(t, p).planAt(0)
	r.complete("PodSandboxStatus", &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{}}}, nil)
	r.planAt(time.Minute).expectNoCall("StopContainer")
	nodeIPs := []string{"fd00::1", "192.0.2.1"}
	if diff := cmp.Diff(nodeIPs, podIPs(p, nodeIPs...)); diff != "" {
		t.Error(diff)
	}
}

// A sandbox that was inspected before the spec was known is replaced as well if it has no IP.
func TestSandboxWithoutIPOfLaterSpec(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.Sandboxes[0].Inspected = false
	r := newHarness(t, p).planAt(0)
	spec := p.Spec
	eff := r.expectCall("PodSandboxStatus")
	record, _ := r.table.Complete(eff.Op)
	p.Spec = nil
	p.HandleCompletion(eff.Op, record, world.Event{Time: r.now, Op: eff.Op,
		Body: &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
			Network: &runtimeapi.PodSandboxNetworkStatus{}}}}, r.env)
	p.Spec = spec
	r.planAt(2 * time.Second).expectCall("StopContainer")
}
