package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/csi/loopcsi"
)

// csiDelay is how long a call of a driver takes in which a test kills something. The call has its
// effect after it, even if the agent that has made it was killed.
const csiDelay = 2 * time.Second

// restartAgent kills and restarts the agent.
func (c *csiSuite) restartAgent(t *testing.T, _ ...string) {
	t.Helper()
	c.agent.signalAndWait(t, syscall.SIGKILL)
	c.agent.startProcess(t)
}

// restartDriver kills and restarts the driver, with faults. Its sidecars end with it, as they do by
// themselves a little later, and are restarted, as they would be in a pod.
func (c *csiSuite) restartDriver(t *testing.T, faults ...string) {
	t.Helper()
	for _, d := range append(c.sidecars, c.driver.Daemon) {
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	c.driver.start(t, faults...)
	for _, d := range c.sidecars {
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// testKills kills something within each call of the life of a pod: in the end the pod has run, and
// nothing of it is left.
func (c *csiSuite) testKills(t *testing.T, kill func(*testing.T, ...string)) {
	calls := []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"NodeUnstageVolume"}
	handle := c.createClaim(t, "killed", v1.ReadWriteOnce)
	pod := c.claimPod("killed", "killed")
	c.restartDriver(t, delays(calls)...)
	c.createPods(t, pod)
	c.killWithin(t, calls[0], calls[1:], kill)
	c.killWithin(t, calls[1], calls[2:], kill)
	c.waitReady(t, pod)
	c.writeFile(t, pod, "/disk/file", "after kills")
	c.expectFile(t, pod, "/disk/file", "after kills")
	c.deletePods(t, pod)
	c.killWithin(t, calls[2], calls[3:], kill)
	c.killWithin(t, calls[3], nil, kill)
	c.waitReleased(t)

	inline := c.inlinePod("killed-inline")
	c.restartDriver(t, delays(calls)...)
	c.createPods(t, inline)
	c.killWithin(t, calls[1], calls[2:], kill)
	c.waitReady(t, inline)
	c.writeFile(t, inline, "/disk/file", "after a kill")
	c.deletePods(t, inline)
	c.killWithin(t, calls[2], nil, kill)
	c.waitReleased(t)
	c.deleteClaim(t, "killed", handle)
	for _, p := range []*v1.Pod{pod, inline} {
		c.waitUntil(t, p.Name+" has gone", func() bool { return c.apiPod(t, p.Name) == nil })
	}
}

// delays returns the faults that delay the first of each of some calls.
func delays(calls []string) (faults []string) {
	for _, call := range calls {
		faults = append(faults, fmt.Sprintf("%s:delay=%v,times=1", call, csiDelay))
	}
	return faults
}

// killWithin waits until the driver is in a call, kills something, and waits until the call has
// had its effect, if it still has one.
func (c *csiSuite) killWithin(t *testing.T, call string, next []string,
	kill func(*testing.T, ...string)) {
	t.Helper()
	c.waitUntil(t, "the driver is in "+call, func() bool {
		return c.driver.countDelays(t, call) > c.delays[call]
	})
	c.delays[call]++
	kill(t, delays(next)...)
	time.Sleep(csiDelay)
}

// testUndisturbed has the agent and the driver restart beside a running pod, which keeps its
// volumes without a further call.
func (c *csiSuite) testUndisturbed(t *testing.T) {
	handle := c.createClaim(t, "calm", v1.ReadWriteOnce)
	pod := c.claimPod("calm", "calm")
	addVolume(pod, "inline", inlineVolume())
	c.createPods(t, pod)
	c.waitReady(t, pod)
	c.writeFile(t, pod, "/disk/file", "calm")
	before, mounts := c.runningPods(t), c.csiMounts(t, "")
	calls := c.driver.nodeCalls(t)
	for name, restart := range map[string]func(){
		"agent":  func() { c.restartAgent(t) },
		"driver": func() { c.restartDriver(t) },
		"both": func() {
			c.agent.signalAndWait(t, syscall.SIGKILL)
			c.restartDriver(t)
			c.agent.startProcess(t)
		},
	} {
		registered := strings.Count(c.driver.log(t), "registered: true")
		restart()
		c.waitUntil(t, "the driver is registered after a restart: "+name, func() bool {
			return strings.Count(c.driver.log(t), "registered: true") > registered
		})
		c.agent.waitHealthy(t)
	}
	other := c.inlinePod("other")
	c.createPods(t, other) // its start shows that the agent has done all that it wanted before
	c.waitReady(t, other)
	c.deletePods(t, other)
	c.waitUntil(t, "the other pod has gone", func() bool { return c.apiPod(t, other.Name) == nil })
	c.checkUnchanged(t, before, c.runningPods(t))
	if after := c.csiMounts(t, ""); !slices.Equal(mounts, after) {
		t.Errorf("mounts are %q, they were %q", after, mounts)
	}
	// The other pod costs two calls. A container of another test that is being created has copies of
	// all mounts for a moment; the volume is in use then, and the agent asks again.
	more := slices.DeleteFunc(c.driver.nodeCalls(t)[len(calls):], func(call string) bool {
		return strings.Contains(call, "is still in use")
	})
	if len(more) != 2 {
		t.Errorf("calls for volumes: %q, want two", more)
	}
	c.expectFile(t, pod, "/disk/file", "calm")
	c.deletePods(t, pod)
	c.waitReleased(t)
	c.deleteClaim(t, "calm", handle)
}

// testForgottenObjects removes a pod, its claim and its volume from the API server while neither
// the agent nor the driver runs.
func (c *csiSuite) testForgottenObjects(t *testing.T) {
	handle := c.createClaim(t, "forgotten", v1.ReadWriteOnce)
	pod := c.claimPod("forgotten", "forgotten")
	addVolume(pod, "inline", inlineVolume())
	pod.Annotations = map[string]string{forcedAnnotation: ""}
	c.createPods(t, pod)
	c.waitReady(t, pod)
	c.agent.signalAndWait(t, syscall.SIGKILL)
	if err := c.driver.Kill(); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "delete", "pod", pod.Name, "--force", patience)
	c.kubectl(t, "delete", "persistentvolumeclaim/forgotten", "persistentvolume/forgotten",
		"csidriver/"+loopcsi.Name, patience)
	c.agent.start(t)
	c.waitUntil(t, "the containers have gone", func() bool {
		return len(c.containerLines(t, "")) == 0
	})
	if staged := c.csiMounts(t, "/globalmount"); len(staged) != 1 {
		t.Errorf("without a driver the volume is staged at %q", staged)
	}
	c.driver.start(t)
	c.waitReleased(t)
	c.driver.removeVolume(t, handle)
	c.createDriverObject(t, loopcsi.Name, false)
}

// testRandomKills kills the agent, the driver or both at random, while pods with claims and inline
// volumes come and go and the driver is slow and loses answers. No data is lost, and in the end
// nothing is left.
func (c *csiSuite) testRandomKills(t *testing.T) {
	const slots, rounds = 3, 15
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var pods [slots]*v1.Pod
	generation := 0
	replace := func(i int) {
		if pods[i] != nil {
			c.deletePods(t, pods[i])
			pods[i] = nil
			return
		}
		generation++
		pods[i] = c.claimPod(fmt.Sprintf("random-%d-%d", i, generation), fmt.Sprint("random-", i))
		addVolume(pods[i], "inline", inlineVolume())
		c.createPods(t, pods[i])
	}
	for i := range slots {
		c.createClaimOf(t, fmt.Sprint("random-", i), loopClaim())
		replace(i)
	}
	c.waitReady(t, pods[:]...)
	for i := range slots {
		c.writeFile(t, pods[i], "/disk/file", fmt.Sprint("of ", i))
	}
	for range rounds {
		replace(random.IntN(slots))
		switch random.IntN(4) {
		case 0:
			c.restartAgent(t)
		case 1:
			c.restartDriver(t, randomFaults(random)...)
		case 2:
			c.agent.signalAndWait(t, syscall.SIGKILL)
			c.restartDriver(t, randomFaults(random)...)
			c.agent.startProcess(t)
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	c.restartDriver(t)
	for i := range slots {
		if pods[i] == nil {
			replace(i)
		}
		c.waitReady(t, pods[i])
		c.expectFile(t, pods[i], "/disk/file", fmt.Sprint("of ", i))
	}
	c.deletePods(t, pods[:]...)
	c.waitReleased(t)
	c.kubectl(t, "delete", "persistentvolumeclaim", "--all", patience)
	c.waitVolumesRemoved(t)
}

// randomFaults returns faults of the driver: each call is late, or its answer is lost at first.
func randomFaults(random *rand.Rand) (faults []string) {
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"NodeUnstageVolume", "ControllerPublishVolume", "ControllerUnpublishVolume"} {
		switch random.IntN(3) {
		case 0:
			faults = append(faults, fmt.Sprintf("%s:delay=%dms", call, random.IntN(1000)))
		case 1:
			faults = append(faults, call+":after=UNAVAILABLE,times=2")
		}
	}
	return faults
}
