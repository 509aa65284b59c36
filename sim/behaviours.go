package sim

import (
	"fmt"
	"strings"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
)

// processScripts makes scripts for the runtime's processes from the behaviours in the plan.
type processScripts struct {
	pods  map[string]*plan.Pod // by the name in the manifest
	ports map[containerKey][]int32
}

type containerKey struct{ pod, container string }

func newProcessScripts(spec *plan.Spec) *processScripts {
	s := &processScripts{pods: map[string]*plan.Pod{}, ports: map[containerKey][]int32{}}
	for i := range spec.Pods {
		pod := &spec.Pods[i]
		s.pods[plan.ManifestName(pod.Manifest)] = pod
	}
	return s
}

// scriptFor returns the script of one process. It depends on how often the runtime has started the
// container, not on the attempt that the agent counts.
func (s *processScripts) scriptFor(i runtime.Instance) runtime.Script {
	pod := s.pods[withoutNodeSuffix(i.PodName)]
	if pod == nil {
		return runtime.Script{}
	}
	key := containerKey{pod.Name, i.Container}
	if _, known := s.ports[key]; !known {
		s.ports[key] = pod.ListeningPorts(i.Container)
	}
	script := runtime.Script{Ports: s.ports[key]}
	behaviour := pod.BehaviourOf(i.Container)
	if behaviour == nil {
		return script
	}
	script.StopDelay = time.Duration(behaviour.StopTakes)
	script.IgnoresTerm, script.HandlesTerm = behaviour.IgnoresTerm, behaviour.HandlesTerm
	script.Replies, script.Writes = responsesOf(behaviour, i.Starts), fileWritesOf(behaviour)
	script.Loads = loadsOf(behaviour)
	script.LogBytesPerSecond = int64(behaviour.LogKiB) << 10
	if n := len(behaviour.Processes); n > 0 {
		process := behaviour.Processes[min(i.Starts, n-1)]
		script.RunsFor, script.ExitCode = time.Duration(process.Runs), process.ExitCode
		script.OOM, script.Message = process.OOM, terminationMessage(i, process.MessageBytes)
	}
	return script
}

// terminationMessage returns a termination message of a length, which differs from those of all
// other processes of the pod.
func terminationMessage(i runtime.Instance, bytes int) string {
	if bytes <= 0 {
		return ""
	}
	text := fmt.Sprintf("the end of %s #%d ", i.Container, i.Attempt)
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}

// responsesOf returns the handler responses of one process, given how many processes ran before it
// in its container.
func responsesOf(b *plan.Behaviour, before int) []runtime.ReplyRule {
	var all []runtime.ReplyRule
	for _, a := range b.Responses {
		if a.Times == 0 || before < a.Times {
			all = append(all, runtime.ReplyRule{
				Match: a.Match, From: time.Duration(a.From), For: time.Duration(a.For),
				Reply: a.Reply, Delay: time.Duration(a.Takes),
			})
		}
	}
	return all
}

// fileWritesOf returns the file writes of one process.
func fileWritesOf(b *plan.Behaviour) []runtime.FileWrite {
	var all []runtime.FileWrite
	for _, w := range b.Writes {
		all = append(all, runtime.FileWrite{Path: w.Path, At: time.Duration(w.At),
			Bytes: int64(w.KiB) << 10, Names: int64(w.ThousandNames+w.ThousandFiles) * 1000,
			OwnFiles: w.ThousandFiles > 0})
	}
	return all
}

// loadsOf returns what one process uses.
func loadsOf(b *plan.Behaviour) []runtime.Load {
	var all []runtime.Load
	for _, l := range b.Loads {
		all = append(all, runtime.Load{At: time.Duration(l.At),
			MemoryBytes: int64(l.MemoryMiB) << 20, Processes: int64(l.Processes)})
	}
	return all
}
