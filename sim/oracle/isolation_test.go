package oracle

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/sim/truth"
)

// beginIsolation starts the agent of a node on which the pods named "greedy" are hostile.
func beginIsolation(s *script) {
	s.model.opts.IsHostile = func(name string) bool { return name == "greedy" }
	s.AgentStarted(s.now)
	s.wait(60)
}

// pollEverySecond adds a response each second.
func pollEverySecond(s *script, seconds int) {
	for range seconds {
		s.wait(1)
		s.CheckServed(s.now, nil)
	}
}

func TestIsolationOfStarts(t *testing.T) {
	begin, poll := beginIsolation, pollEverySecond
	runCases(t, []testCase{
		{"started in time", "", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			poll(s, 10)
			s.start(s.sandbox("u1", 0), "app", 0)
			poll(s, 60)
		}},
		{"not started", "isolation", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			poll(s, 30)
		}},
		{"a hostile pod is not started", "", func(s *script) {
			begin(s)
			greedy := spec("u1", always, "app")
			greedy.Name = "greedy"
			s.setDesired(greedy)
			poll(s, 60)
		}},
		{"no pod is hostile", "", func(s *script) {
			s.AgentStarted(s.now)
			s.wait(60)
			s.setDesired(spec("u1", always, "app"))
			poll(s, 60)
		}},
		{"started in time after a fault", "", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			at := s.now
			s.model.opts.LastFault = func(time.Time) time.Time { return at }
			poll(s, 24)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"not started long after a fault", "isolation", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			at := s.now
			s.model.opts.LastFault = func(time.Time) time.Time { return at }
			poll(s, 30)
		}},
		{"not started during faults", "", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			s.model.opts.LastFault = func(now time.Time) time.Time { return now }
			poll(s, 60)
		}},
		{"started in time after a restart of the agent", "", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			s.wait(1)
			s.AgentStarted(s.now)
			poll(s, 24)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"not started long after a restart of the agent", "isolation", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			s.wait(1)
			s.AgentStarted(s.now)
			poll(s, 30)
		}},
	})
}

func TestIsolationOfEnds(t *testing.T) {
	begin, poll := beginIsolation, pollEverySecond
	runCases(t, []testCase{
		{"not removed", "isolation", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			r := s.start(s.sandbox("u1", 0), "app", 0)
			poll(s, 5)
			s.PodNoLongerDesired(s.now, "u1")
			poll(s, 2)
			r.exit(0, truth.CauseStop)
			poll(s, 60)
		}},
		{"ends within its grace period", "", func(s *script) {
			begin(s)
			s.setDesired(spec("u1", always, "app"))
			r := s.start(s.sandbox("u1", 0), "app", 0)
			poll(s, 5)
			s.PodNoLongerDesired(s.now, "u1")
			poll(s, 30)
			r.exit(0, truth.CauseStop)
			r.change(truth.ContainerRemoved, "")
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			s.changeSandbox(truth.SandboxRemoved, "u1-s0")
			poll(s, 30)
		}},
		{"the Node's status is old", "isolation", func(s *script) {
			begin(s)
			node := &v1.Node{}
			node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}}
			node.Status.Conditions[0].LastHeartbeatTime.Time = s.now
			s.model.objects.node, s.model.objects.nodeCreatedAt = node, s.now
			s.wait(600)
		}},
	})
}

func TestPodCost(t *testing.T) {
	token := func(s *script, n int) {
		s.addFact(truth.TokenIssued, truth.Fact{Audience: string(rune('A' + n)),
			Expires: s.now.Add(time.Hour)})
	}
	created := func(env map[string]string) func(s *script) {
		return func(s *script) {
			s.AgentStarted(s.now)
			s.addFact(truth.ContainerCreated, truth.Fact{SandboxID: s.sandbox("u1", 0),
				Container: "app", ContainerID: "c", Env: env})
		}
	}
	long := func(n int) string { return string(make([]byte, n)) }
	probed := func(bytes int) func(s *script) {
		return func(s *script) {
			command := long(bytes)
			s.startPodWith(func(c *v1.Container) {
				c.ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{
					Exec: &v1.ExecAction{Command: []string{command}}}}
			}).startRequest("exec " + command)
		}
	}
	status := func(paths, images int) func(s *script) {
		return func(s *script) {
			s.startPod(always)
			after := s.served("u1", v1.PodRunning)
			after.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", Image: long(images),
				VolumeMounts: []v1.VolumeMountStatus{{MountPath: long(paths)}}}}
			s.store(1, s.served("u1", v1.PodRunning), after)
		}
	}
	many := map[string]string{}
	for n := range variablesMax + 1 {
		many[string(rune('\U00010000'+n))] = ""
	}
	runCases(t, []testCase{
		{"64 tokens, each twice", "", func(s *script) {
			for n := range 2 * tokensOfPodMax {
				token(s, n/2)
				s.wait(0.2)
			}
		}},
		{"65 tokens", "pod-cost", func(s *script) {
			for n := range tokensOfPodMax + 1 {
				token(s, n)
			}
		}},
		{"a long variable", "", created(map[string]string{"A": long(variableMax - 4)})},
		{"too long a variable", "pod-cost", created(map[string]string{"A": long(variableMax)})},
		{"too many variables", "pod-cost", created(many)},
		{"a long command of a probe", "", probed(commandMax)},
		{"too long a command of a probe", "pod-cost", probed(commandMax + 1)},
		{"a long command of a hook", "", func(s *script) {
			command := long(commandMax + 1)
			s.startPodWith(func(c *v1.Container) {
				c.Lifecycle = &v1.Lifecycle{PostStart: hook(command)}
			}).startRequest("exec " + command)
		}},
		{"long names in a status", "", status(mountPathsMax, imagesMax)},
		{"too long paths in a status", "pod-cost", status(mountPathsMax+1, 0)},
		{"too long images in a status", "pod-cost", status(0, imagesMax+1)},
	})
}

func TestIsolationOfHostileEnds(t *testing.T) {
	runHostile := func(s *script, driver string) {
		beginIsolation(s)
		s.model.opts.HungDrivers = []string{"hung"}
		greedy := spec("u1", always, "app")
		greedy.Name = "greedy"
		greedy.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			CSI: &v1.CSIVolumeSource{Driver: driver}}}}
		s.setDesired(greedy)
		s.sandbox("u1", 0)
		s.wait(60)
		s.PodNoLongerDesired(s.now, "u1")
	}
	runCases(t, []testCase{
		{"a hostile pod is left", "isolation", func(s *script) {
			runHostile(s, "other")
			pollEverySecond(s, 240)
		}},
		{"a hostile pod takes a while to end", "", func(s *script) {
			runHostile(s, "other")
			pollEverySecond(s, 120)
		}},
		{"a hostile pod whose driver hangs", "", func(s *script) {
			runHostile(s, "hung")
			pollEverySecond(s, 600)
		}},
		{"a hostile pod whose driver has just been mended", "", func(s *script) {
			runHostile(s, "hung")
			s.Healed(s.now)
			pollEverySecond(s, 400)
		}},
		{"a hostile pod whose driver was mended long ago", "isolation", func(s *script) {
			runHostile(s, "hung")
			s.Healed(s.now)
			pollEverySecond(s, 600)
		}},
	})
}

func TestTokensOfDrivers(t *testing.T) {
	publish := func(requests, volumes int) func(s *script) {
		return func(s *script) {
			driver := &storagev1.CSIDriver{}
			driver.Spec.TokenRequests = make([]storagev1.TokenRequest, requests)
			s.model.csi.drivers["d"] = driver
			pod := spec("u1", always, "app")
			for n := range volumes {
				pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", n),
					VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}})
			}
			s.setDesired(pod)
			for _, use := range s.model.csiUses(pod) {
				s.addFact(truth.VolumePublished, truth.Fact{Path: use.path,
					Volume: &truth.Volume{Driver: "d", Handle: use.handle}})
			}
		}
	}
	runCases(t, []testCase{
		{"as many as there may be", "", publish(2, 32)},
		{"one volume more", "pod-cost", publish(2, 33)},
		{"none", "", publish(0, 200)},
	})
}
