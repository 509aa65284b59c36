package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/world"
)

// eventLine returns an event as a user sees it.
func eventLine(e *world.RecordEvent) string {
	where := e.Regarding.Name
	if e.Regarding.FieldPath != "" {
		where += " " + e.Regarding.FieldPath
	}
	return fmt.Sprintf("%s %s %s: %s\n", e.Type, e.Reason, where, e.Message)
}

// takeEvents returns the events that were recorded since the last call.
func (n *fakeNode) takeEvents() string {
	events := strings.Join(n.events, "")
	n.events = nil
	return events
}

// startEvents are those of an agent that starts.
const startEvents = "Normal Starting n1: Starting kubelet.\n" + enforcedEvent

const enforcedEvent = "Normal NodeAllocatableEnforced n1: Updated Node Allocatable limit across " +
	"pods\n"

// The events of a pod from start to end, as kubectl describe shows them. An agent that is restarted
// records no events for running pods.
func TestEventsOfAPod(t *testing.T) {
	manifest := strings.Replace(web, "{\n", "{dnsPolicy: Default,\n", 1)
	n := bootNode(map[string]string{"web.yaml": manifest})
	n.advance(5 * time.Second)
	lived := n.takeEvents()
	n.restart()
	n.advance(5 * time.Minute)
	restarted := n.takeEvents()
	delete(n.manifests, "web.yaml")
	n.advance(time.Minute)
	const pull = `Normal Pulling web-n1 %[1]s: Pulling image "i"
Normal Pulled web-n1 %[1]s: Successfully pulled image "i" in 0s (0s including waiting). ` +
		`Image size: 1024 bytes.
Normal Created web-n1 %[1]s: Container created
Normal Started web-n1 %[1]s: Container started
`
	for _, test := range []struct{ when, got, want string }{
		{"it starts", lived, startEvents +
			fmt.Sprintf(pull, "spec.initContainers{setup}") +
			fmt.Sprintf(pull, "spec.containers{web}")},
		{"the agent is restarted", restarted, startEvents},
		{"it ends", n.takeEvents(),
			"Normal Killing web-n1 spec.containers{web}: Stopping container web\n"},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("when %s:\n%s", test.when, diff)
		}
	}
}

// A rejected pod and a preempted pod have an event with the reason.
func TestEventsOfAdmission(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "1500m", 0))
	n.apiServer.put(withRequests(apiPodNamed("b", "u2"), "1", 0))
	n.advance(5 * time.Second)
	n.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1", 2_000_000_000))
	n.advance(30 * time.Second)
	all := n.takeEvents()
	for _, want := range []string{
		"Warning OutOfcpu b: Node didn't have enough resource: cpu",
		"Warning Preempting a: Preempted in order to admit critical pod\n",
		"Normal Started c spec.containers{",
	} {
		if strings.Count(all, want) != 1 {
			t.Errorf("%q is not recorded exactly once in\n%s", want, all)
		}
	}
	n.restart()
	n.advance(time.Minute)
	if got := n.takeEvents(); got != startEvents {
		t.Errorf("after a restart: %s", got)
	}
}

// Where secrets may be swapped to a disk, an event says so.
func TestEventOfSwappedVolumes(t *testing.T) {
	n := newNode(nil)
	n.machine.Machine.SwapsTmpfs = true
	n.restart()
	n.advance(5 * time.Second)
	const want = "Warning PossibleMemoryBackedVolumesOnDisk n1: The tmpfs noswap option is not " +
		"supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk " +
		"and should no longer be considered secure.\n"
	if got := n.takeEvents(); !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What happens to the machine has an event about the node.
func TestEventsOfTheMachine(t *testing.T) {
	n := newNode(nil)
	n.machine.Machine.CgroupV1 = true
	n.restart()
	n.advance(5 * time.Second)
	want := "Normal Starting n1: Starting kubelet.\nWarning CgroupV1 n1: cgroup v1 detected. cgroup " +
		"v1 support is deprecated and will be removed in a future release. Please migrate to cgroup " +
		"v2. More information at " +
		"https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1\n" + enforcedEvent
	if diff := cmp.Diff(want, n.takeEvents()); diff != "" {
		t.Errorf("at the start:\n%s", diff)
	}
	n.event(world.Event{Body: &world.SystemOOM{Process: "stress", PID: 4711}})
	want = "Warning SystemOOM n1: System OOM encountered, victim process: stress, pid: 4711\n"
	if diff := cmp.Diff(want, n.takeEvents()); diff != "" {
		t.Errorf("out of memory:\n%s", diff)
	}
	const end = 20 // seconds from now
	n.machine.Certificates = []world.Certificate{{Usage: world.ServingCertificate,
		NotAfter: n.now.Add(end * time.Second)}}
	n.advance(end * time.Second)
	if got := n.takeEvents(); got != "" {
		t.Errorf("with a valid certificate: %s", got)
	}
	n.advance(time.Minute)
	want = "Warning CertificateExpired n1: The node's serving certificate expired at " +
		n.machine.Certificates[0].NotAfter.Format(time.RFC3339) + "\n"
	if diff := cmp.Diff(want, n.takeEvents()); diff != "" {
		t.Errorf("after the end of a certificate:\n%s", diff)
	}
}

// Processes that are ended a thousand times a second have few Events: ten at once, and then one
// with their number in ten minutes. What the port has omitted counts.
func TestEventsOfAForkBomb(t *testing.T) {
	n := newNode(nil)
	n.restart()
	n.advance(5 * time.Second)
	n.takeEvents()
	end := func(omitted uint64) {
		n.event(world.Event{Body: &world.SystemOOM{Process: "bomb", PID: 7, Omitted: omitted}})
	}
	expect := func(processes, numbers string) {
		t.Helper()
		const prefix = "Warning SystemOOM n1: System OOM encountered, victim process"
		got := n.takeEvents()
		if want := strings.Repeat(prefix+": bomb, pid: 7\n", len(processes)); processes != "" {
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
			return
		}
		want := ""
		if numbers != "" {
			want = prefix + "es without an Event of their own: " + numbers + "\n"
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for range 1000 {
		end(0)
		n.advance(time.Millisecond)
	}
	expect("xxxxxxxxxx", "")
	n.advance(9 * time.Minute)
	end(99)
	expect("", "")
	n.advance(time.Minute)
	expect("", "1090")
	end(0)
	n.advance(9 * time.Minute)
	expect("", "")
	n.advance(time.Minute)
	expect("", "1")
	n.advance(25 * time.Minute) // the rate allows two again
	end(0)
	end(0)
	end(0)
	expect("xx", "")
	n.advance(24 * time.Hour)
	expect("", "1")
	if o := n.agent.state.OOMs; o.Seen != 1104 || o.OmittedTotal != 1092 {
		t.Errorf("%+v", o)
	}
}

// The name of a process is a tenant's: its Event is short and printable.
func TestEventsOfProcessNames(t *testing.T) {
	for name, want := range map[string]string{
		"":          "System OOM encountered",
		"a\nb\xffc": "System OOM encountered, victim process: a?b?c, pid: 7",
		strings.Repeat("x", 5000): "System OOM encountered, victim process: " +
			strings.Repeat("x", 60) + ", pid: 7",
	} {
		n := newNode(nil)
		n.restart()
		n.advance(5 * time.Second)
		n.takeEvents()
		n.event(world.Event{Body: &world.SystemOOM{Process: name, PID: 7}})
		if diff := cmp.Diff("Warning SystemOOM n1: "+want+"\n", n.takeEvents()); diff != "" {
			t.Errorf("%.20q:\n%s", name, diff)
		}
	}
}

// What does not fit into the resolver configuration of pods has an event about each pod. What
// is wrong with that of the node has an event about the node.
func TestEventsAboutDNS(t *testing.T) {
	n := newNode(map[string]string{"web.yaml": web})
	n.resolvConf = "search " + strings.Repeat("a", 254) + " b\n"
	n.restart()
	n.advance(5 * time.Second)
	all := n.takeEvents()
	for _, want := range []string{
		`Warning CheckLimitsForResolvConf n1: Resolv.conf file "/etc/resolv.conf" contains a ` +
			"search path which length is more than allowed 253 chars!\n",
		"Warning MissingClusterDNS n1: kubelet does not have ClusterDNS IP configured and cannot " +
			`create Pod using "ClusterFirst" policy. Falling back to "Default" policy.` + "\n",
		`Warning MissingClusterDNS web-n1: pod: "web-n1_default(`,
		"Warning DNSConfigForming web-n1: Search Line limits were exceeded, some search paths " +
			"have been omitted, the applied search line is: b\n",
	} {
		if strings.Count(all, want) != 1 {
			t.Errorf("%q is not recorded exactly once in\n%s", want, all)
		}
	}
	n.advance(5 * time.Minute)
	if got := n.takeEvents(); got != "" {
		t.Errorf("later: %s", got)
	}
}
