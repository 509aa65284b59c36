package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// startPlugin has a plugin make a socket, whose file has the name of the socket and its version.
func startPlugin(s *script, socket, name string, versions ...string) {
	file := socket
	for _, v := range versions {
		file += v
	}
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.PluginStarted, Path: socket,
		Plugin: &truth.Plugin{File: file, Type: "CSIPlugin", Name: name, Versions: versions}})
}

func endPlugin(s *script, socket string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.PluginEnded, Path: socket})
}

func askPlugin(s *script, socket string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.PluginAsked, Path: socket})
	s.wait(0.01)
}

// notifyPlugin notifies a plugin that it is registered, or why it is not.
func notifyPlugin(s *script, socket, refusal string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.PluginNotified, Path: socket,
		IsRegistered: refusal == "", Message: refusal})
}

func registerPlugin(s *script, socket string) {
	askPlugin(s, socket)
	notifyPlugin(s, socket, "")
}

// pollAfter has a client request the pods after a time.
func pollAfter(s *script, seconds float64) {
	s.wait(seconds)
	s.CheckServed(s.now, nil)
}

func requestPlugin(s *script, socket, file string) {
	s.CallIssued(s.now, &world.Effect{Op: 1, Deadline: s.now.Add(time.Minute),
		Body: &world.GetPluginInfo{Socket: world.PluginSocket{Path: socket, File: file}}})
}

func TestPlugins(t *testing.T) {
	runCases(t, []testCase{
		{"registered", "", func(s *script) {
			startPlugin(s, "/a", "a.test", "0.3.0", "1.0.0", "2.0.0")
			registerPlugin(s, "/a")
			pollAfter(s, 60)
		}},
		{"not registered", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			pollAfter(s, 20)
		}},
		{"not registered, and is asked in vain", "", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			s.wait(10)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.PluginAsked, Path: "/a",
				Cause: truth.CausePlugin})
			pollAfter(s, 20)
		}},
		{"an earlier refusal is delivered late", "", func(s *script) {
			startPlugin(s, "/b", "a.test", "1.0.0")
			startPlugin(s, "/a", "a.test", "1.0.0")
			registerPlugin(s, "/b")
			askPlugin(s, "/a")
			endPlugin(s, "/b")
			s.wait(5)
			registerPlugin(s, "/a")
			notifyPlugin(s, "/a", "/b has the name")
			pollAfter(s, 60)
		}},
		{"not registered by the next agent", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			registerPlugin(s, "/a")
			s.wait(60)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			pollAfter(s, 20)
		}},
		{"not registered again after a replacement", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			registerPlugin(s, "/a")
			s.wait(60)
			endPlugin(s, "/a")
			startPlugin(s, "/a", "a.test", "1.1.0")
			pollAfter(s, 20)
		}},
		{"registered twice", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			registerPlugin(s, "/a")
			s.wait(60)
			notifyPlugin(s, "/a", "")
		}},
		{"asked although it is registered", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			registerPlugin(s, "/a")
			s.wait(60)
			askPlugin(s, "/a")
		}},
		{"asked too often", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "2.0.0")
			s.wait(60)
			askPlugin(s, "/a")
			notifyPlugin(s, "/a", "no")
			askPlugin(s, "/a")
		}},
	})
}

// A fault excuses what it may have caused, for as long as it may have.
func TestPluginsUnderFaults(t *testing.T) {
	const name = "plugins"
	always := func(s *script, fault string) {
		s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool { return call == fault }
	}
	registered := func(fault string, seconds float64) func(*script) {
		return func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			registerPlugin(s, "/a")
			s.loseCall(fault)
			s.wait(seconds)
			askPlugin(s, "/a")
		}
	}
	refused := func(fault string) func(*script) {
		return func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			s.loseCall(fault)
			askPlugin(s, "/a")
			notifyPlugin(s, "/a", "because")
		}
	}
	ignored := func(version, fault string) func(*script) {
		return func(s *script) {
			always(s, fault)
			startPlugin(s, "/a", "a.test", version)
			askPlugin(s, "/a")
			pollAfter(s, 20)
		}
	}
	runCases(t, []testCase{
		{"a driver, which the API server does not take", "", ignored("1.0.0", "PatchObject")},
		{"what is no driver, and the API server fails", name, ignored("2.0.0", "PatchObject")},
		{"asked again after a lost answer", "", registered("NotifyPluginRegistration", 60)},
		{"asked again long after a lost answer", name, registered("NotifyPluginRegistration", 600)},
		{"asked again after a fault of the API server", name, registered("PatchObject", 60)},
		{"refused by the API server", "", refused("UpdateObject")},
		{"refused, and a read has failed", name, refused("GetObject")},
		{"asked long after its end, and another request has failed", name, func(s *script) {
			always(s, "GetPluginInfo")
			startPlugin(s, "/a", "a.test", "1.0.0")
			endPlugin(s, "/a")
			s.wait(5)
			requestPlugin(s, "/a", "/a1.0.0")
		}},
	})
}

func TestRefusedPlugins(t *testing.T) {
	runCases(t, []testCase{
		{"an unsupported version", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "0.9.0", "2.0.0")
			registerPlugin(s, "/a")
		}},
		{"an invalid name", "plugins", func(s *script) {
			startPlugin(s, "/a", "../etc", "1.0.0")
			registerPlugin(s, "/a")
		}},
		{"not notified of the refusal", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "2.0.0")
			askPlugin(s, "/a")
			pollAfter(s, 20)
		}},
		{"refused without a reason", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			askPlugin(s, "/a")
			notifyPlugin(s, "/a", "because")
		}},
	})
}

func TestPluginsOfOneName(t *testing.T) {
	two := func(s *script, second string) {
		startPlugin(s, "/a", "a.test", "1.1.0")
		startPlugin(s, "/b", "a.test", second)
		registerPlugin(s, "/a")
		askPlugin(s, "/b")
	}
	runCases(t, []testCase{
		{"both are registered", "plugins", func(s *script) {
			two(s, "1.1.0")
			notifyPlugin(s, "/b", "")
		}},
		{"the higher one is registered", "", func(s *script) {
			two(s, "1.2.0")
			notifyPlugin(s, "/b", "")
		}},
		{"the higher one is not registered", "plugins", func(s *script) {
			two(s, "1.2.0")
			pollAfter(s, 60)
		}},
		{"the lower one is registered", "plugins", func(s *script) {
			two(s, "1.0.0")
			notifyPlugin(s, "/b", "")
		}},
		{"the first one goes", "", func(s *script) {
			two(s, "1.1.0")
			notifyPlugin(s, "/b", "held")
			pollAfter(s, 60)
			endPlugin(s, "/a")
			registerPlugin(s, "/b")
			pollAfter(s, 60)
		}},
		{"the first one goes, and the second is not registered", "plugins", func(s *script) {
			two(s, "1.1.0")
			notifyPlugin(s, "/b", "held")
			s.wait(60)
			endPlugin(s, "/a")
			pollAfter(s, 20)
		}},
	})
}

func TestPluginThatIsGone(t *testing.T) {
	runCases(t, []testCase{
		{"asked soon after its end", "", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			endPlugin(s, "/a")
			s.wait(0.5)
			requestPlugin(s, "/a", "/a1.0.0")
		}},
		{"asked long after its end", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			endPlugin(s, "/a")
			s.wait(5)
			requestPlugin(s, "/a", "/a1.0.0")
		}},
		{"asked long after its replacement", "plugins", func(s *script) {
			startPlugin(s, "/a", "a.test", "1.0.0")
			endPlugin(s, "/a")
			startPlugin(s, "/a", "a.test", "1.1.0")
			s.wait(5)
			requestPlugin(s, "/a", "/a1.0.0")
		}},
	})
}

// TestPluginWithoutNode has no Node object, without which no driver can be registered. A plugin can
// be refused without it.
func TestPluginWithoutNode(t *testing.T) {
	for _, c := range []struct{ version, want string }{
		{"1.0.0", ""},
		{"2.0.0", `plugin "a.test" at /a is not notified that it is refused`},
	} {
		s := newScript()
		s.model.opts.HasAPIServer = true
		startPlugin(s, "/a", "a.test", c.version)
		s.wait(60)
		if got := s.unsettled(); got != c.want {
			t.Errorf("version %s: %q, want %q", c.version, got, c.want)
		}
	}
	s := newScript()
	startPlugin(s, "/a", "a.test", "1.0.0")
	registerPlugin(s, "/a")
	s.model.opts.HasAPIServer = true
	startPlugin(s, "/b", "a.test", "1.0.0")
	s.wait(60)
	if want := `plugin "a.test" at /b is not notified that it is refused`; s.unsettled() != want {
		t.Errorf("beside one of its name: %q, want %q", s.unsettled(), want)
	}
}

// TestVolumeWithoutNode has a pod with a volume of a driver that runs, and of which the cluster
// learns only once there is a Node object.
func TestVolumeWithoutNode(t *testing.T) {
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		CSI: &v1.CSIVolumeSource{Driver: "a.test"}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data"}}
	s := newScript()
	s.AgentStarted(s.now)
	s.model.opts.HasAPIServer = true
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.DriverStarted,
		Driver: &truth.Driver{Name: "a.test"}})
	startPlugin(s, "/a", "a.test", "1.0.0")
	s.setDesired(pod)
	lacks := func() bool { return s.model.podsInOrder[0].lacksVolume(s.now) }
	if !lacks() {
		t.Error("without a Node and a registration, the volume is expected")
	}
	registerPlugin(s, "/a")
	if lacks() {
		t.Error("a volume of a registered driver is not expected")
	}
}
