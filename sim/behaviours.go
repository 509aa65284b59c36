package sim

import (
	"fmt"
	"strings"
	"time"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// behaviours finds what each process does in the plan.
type behaviours struct {
	pods    map[string]*PlanPod // by the name in the manifest
	listens map[listener][]int32
}

type listener struct{ pod, container string }

func newBehaviours(plan *PlanSpec) *behaviours {
	b := &behaviours{pods: map[string]*PlanPod{}, listens: map[listener][]int32{}}
	for i := range plan.Pods {
		pod := &plan.Pods[i]
		b.pods[nameOf(pod.Manifest)] = pod
	}
	return b
}

// script is what one process does. It is chosen by how often the container has been started, as
// the world counts, so that what happens does not depend on how the agent counts.
func (b *behaviours) script(i runtime.Instance) runtime.Script {
	pod := b.pods[manifestName(i.PodName)]
	if pod == nil {
		return runtime.Script{}
	}
	key := listener{pod.Name, i.Container}
	if _, known := b.listens[key]; !known {
		b.listens[key] = pod.listens(i.Container)
	}
	script := runtime.Script{Ports: b.listens[key]}
	does := pod.behaviour(i.Container)
	if does == nil {
		return script
	}
	script.StopTakes, script.IgnoresTerm = time.Duration(does.StopTakes), does.IgnoresTerm
	script.HandlesTerm, script.Answers = does.HandlesTerm, does.answers(i.Starts)
	script.Writes = does.script()
	script.LogBytes = int64(does.LogKiB) << 10
	if n := len(does.Processes); n > 0 {
		process := does.Processes[min(i.Starts, n-1)]
		script.Runs, script.ExitCode = time.Duration(process.Runs), process.ExitCode
		script.OOM, script.Message = process.OOM, message(i, process.MessageBytes)
	}
	return script
}

// message is what a process says when it exits: so many bytes that are like no other's.
func message(i runtime.Instance, bytes int) string {
	if bytes <= 0 {
		return ""
	}
	text := fmt.Sprintf("the end of %s #%d ", i.Container, i.Attempt)
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}

// images finds what the plan says about an image.
type images struct {
	planned map[string]*PlanImage
	users   map[string]string
}

// forever is longer than any run.
const forever = 1000 * time.Hour

func newImages(plan *PlanSpec) images {
	all := images{map[string]*PlanImage{}, plan.ImageUsers}
	for i := range plan.Images {
		all.planned[plan.Images[i].Ref] = &plan.Images[i]
	}
	return all
}

func (all images) image(ref string, pulls int) runtime.Image {
	img := all.planned[ref]
	if img == nil {
		return runtime.Image{User: all.users[ref]}
	}
	is := runtime.Image{
		Absent: true, PullTakes: time.Duration(img.PullTakes), User: all.users[ref],
	}
	if img.Stuck && pulls == 0 {
		is.PullTakes = forever
	}
	if pulls < img.Failures {
		is.PullError = world.Errorf(world.KindInternal, "PullImage", "planned failure of a pull")
	}
	return is
}

// user is whom an image runs as, without the group.
func (all images) user(ref string) string {
	user, _, _ := strings.Cut(all.users[ref], ":")
	return user
}
