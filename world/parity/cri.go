package parity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// CRI runs the suite of the CRI port. Each case has pods of its own and removes them. The second
// case pulls an image, which may be the one that all later cases need.
func CRI(t *testing.T, w Runtime) {
	runCases(t, w, 0, []criCase{
		{"tells its version and that it is ready", aboutItself},
		{"an absent image has an empty status and can be pulled", pullImage},
		{"a sandbox is ready and listed", sandboxIsReady},
		{"a sandbox name is taken until it is removed", sandboxNameIsTaken},
		{"a sandbox name is taken while it is being made", sandboxNameIsTakenMeanwhile},
		{"sandbox attempts live side by side", sandboxAttempts},
		{"a stopped sandbox is not ready and has no address", stoppedSandbox},
		{"stopping a sandbox kills what runs in it", stoppedSandboxKills},
		{"stopping and removing what is unknown does no harm", unknownIsGone},
		{"statuses of what is unknown are not found", unknownStatus},
		{"ids are of one kind", idsOfOneKind},
		{"creating in a sandbox that is unknown or stopped fails", createInNoSandbox},
		{"a container name is taken until it is removed", containerNameIsTaken},
		{"a container name belongs to the pod, not to its sandbox", containerNameIsThePods},
		{"a container without its image is not made", createWithoutImage},
		{"states and times of a container that exits", exitsByItself},
		{"a container that exits with 0 has completed", exitsWithZero},
		{"a container that runs has no end", running},
		{"a container starts once", startsOnce},
		{"starting what is unknown is not found", startUnknown},
		{"a container whose sandbox has stopped exits by being started", startInStoppedSandbox},
		{"TERM ends a container with 143", stopByTerm},
		{"TERM may be handled", stopHandled},
		{"KILL ends a container with 137 when its grace has run out", stopByKill},
		{"no grace is KILL at once", stopAtOnce},
		{"a second stop with less grace does not wait for the first", stopTwice},
		{"stopping a container that does not run succeeds", stopNotRunning},
		{"removing a running container kills it", removeRunning},
		{"removing a container that does not run", removeNotRunning},
		{"removing a sandbox removes its containers", removeSandboxWithContainers},
		{"lists are filtered", listFilters},
		{"labels, annotations and metadata come back", keepsWhatItWasTold},
		{"a missing image cannot be pulled", pullMissingImage},
	})
}

// criCase is one case about a runtime.
type criCase struct {
	name string
	run  func(*pod)
}

// runCases runs cases on a runtime. Suites that share a runtime number their pods from different
// bases.
func runCases(t *testing.T, w Runtime, base int, cases []criCase) {
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			number := base + i + 1
			p := &pod{T: t, w: w, uid: fmt.Sprintf("00000000-0000-4000-8000-%012d", number),
				name: fmt.Sprintf("parity-%d", number)}
			defer p.cleanUp()
			c.run(p)
		})
	}
}

func aboutItself(p *pod) {
	v := must[*runtimeapi.VersionResponse](p, &runtimeapi.VersionRequest{})
	p.check(v.RuntimeApiVersion == "v1" && v.RuntimeName != "", "version %v", v)
	// containerd 1.6 does not know the call.
	_, err := p.w.Call(&runtimeapi.RuntimeConfigRequest{})
	p.check(err == nil || err.Has(world.KindInvalid), "RuntimeConfig: %v", err)
	s := must[*runtimeapi.StatusResponse](p, &runtimeapi.StatusRequest{})
	conditions := map[string]bool{}
	for _, c := range s.GetStatus().GetConditions() {
		conditions[c.Type] = c.Status
	}
	p.check(conditions[runtimeapi.RuntimeReady] && conditions[runtimeapi.NetworkReady],
		"conditions %v", conditions)
}

func sandboxIsReady(p *pod) {
	before := p.w.Now()
	id := p.sandbox(0)
	s := p.sandboxStatus(id)
	p.check(s.State == runtimeapi.PodSandboxState_SANDBOX_READY, "state %v", s.State)
	p.check(s.GetNetwork().GetIp() != "", "no address: %v", s.Network)
	created := time.Unix(0, s.CreatedAt)
	p.check(!created.Before(before) && !created.After(p.w.Now()), "created at %v", created)
	listed := p.sandboxes(&runtimeapi.PodSandboxFilter{Id: id})
	p.check(len(listed) == 1 && listed[0].State == s.State, "listed %v", listed)
}

func sandboxNameIsTaken(p *pod) {
	id := p.sandbox(0)
	p.fails(p.runSandbox(0), world.KindExists)
	p.stopSandbox(id)
	p.fails(p.runSandbox(0), world.KindExists)
	p.removeSandbox(id)
	p.check(p.sandbox(0) != id, "the id was used again")
}

func sandboxNameIsTakenMeanwhile(p *pod) {
	waitA := p.w.Begin(p.runSandbox(0))
	waitB := p.w.Begin(p.runSandbox(0))
	bodyA, errA := waitA()
	bodyB, errB := waitB()
	if errA != nil {
		bodyA, bodyB, errB = bodyB, bodyA, errA
	}
	p.check(bodyA != nil && bodyB == nil && errB.Has(world.KindExists),
		"two calls at once: %v, %v", errA, errB)
	p.check(len(p.sandboxes(p.mySandboxes())) == 1, "not one sandbox")
}

func sandboxAttempts(p *pod) {
	first, second := p.sandbox(0), p.sandbox(1)
	listed := p.sandboxes(p.mySandboxes())
	p.check(first != second && len(listed) == 2, "listed %v", listed)
}

func stoppedSandbox(p *pod) {
	id := p.sandbox(0)
	p.stopSandbox(id)
	s := p.sandboxStatus(id)
	p.check(s.State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY, "state %v", s.State)
	p.check(s.GetNetwork().GetIp() == "", "address %q", s.GetNetwork().GetIp())
	p.stopSandbox(id)
}

func stoppedSandboxKills(p *pod) {
	id := p.sandbox(0)
	runs, idle := p.started(id, Runs, 0), p.created(id, IgnoresTerm, 0)
	p.stopSandbox(id)
	s := p.status(runs)
	p.check(s.State == exited && s.ExitCode == 137, "running container: %v %d", s.State, s.ExitCode)
	p.check(p.status(idle).State == created, "created container: %v", p.status(idle).State)
}

const nobody = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func unknownIsGone(p *pod) {
	for _, body := range []any{
		&runtimeapi.StopContainerRequest{ContainerId: nobody, Timeout: 1},
		&runtimeapi.RemoveContainerRequest{ContainerId: nobody},
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: nobody},
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: nobody},
	} {
		_, err := p.w.Call(body) // containerd 1.6 says that it is not found
		p.check(err == nil || err.Has(world.KindNotFound), "%s: %v", world.Call(body), err)
	}
}

func unknownStatus(p *pod) {
	p.fails(&runtimeapi.ContainerStatusRequest{ContainerId: nobody}, world.KindNotFound)
	p.fails(&runtimeapi.PodSandboxStatusRequest{PodSandboxId: nobody}, world.KindNotFound)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{Id: nobody})) == 0, "listed")
	p.check(len(p.sandboxes(&runtimeapi.PodSandboxFilter{Id: nobody})) == 0, "listed")
}

func idsOfOneKind(p *pod) {
	id := p.sandbox(0)
	container := p.created(id, Runs, 0)
	p.fails(&runtimeapi.ContainerStatusRequest{ContainerId: id}, world.KindNotFound)
	p.fails(&runtimeapi.PodSandboxStatusRequest{PodSandboxId: container}, world.KindNotFound)
	must[*runtimeapi.RemoveContainerResponse](p, &runtimeapi.RemoveContainerRequest{
		ContainerId: id})
	must[*runtimeapi.RemovePodSandboxResponse](p, &runtimeapi.RemovePodSandboxRequest{
		PodSandboxId: container})
	p.check(p.sandboxStatus(id).State == runtimeapi.PodSandboxState_SANDBOX_READY, "sandbox")
	p.check(p.status(container).State == created, "container")
}

func keepsWhatItWasTold(p *pod) {
	id := p.sandbox(0)
	container := p.created(id, Runs, 7)
	s := p.status(container)
	p.check(s.GetMetadata().GetName() == string(Runs) && s.GetMetadata().GetAttempt() == 7,
		"metadata %v", s.Metadata)
	p.check(s.Labels["io.kubernetes.pod.uid"] == p.uid && s.Annotations["parity/attempt"] == "7",
		"labels %v, annotations %v", s.Labels, s.Annotations)
	listed := p.containers(&runtimeapi.ContainerFilter{Id: container})
	p.check(len(listed) == 1 && listed[0].Annotations["parity/attempt"] == "7" &&
		listed[0].PodSandboxId == id && listed[0].CreatedAt == s.CreatedAt, "listed %v", listed)
	sb := p.sandboxStatus(id)
	p.check(sb.GetMetadata().GetUid() == p.uid && sb.GetMetadata().GetNamespace() == namespace &&
		sb.Labels["io.kubernetes.pod.uid"] == p.uid, "sandbox %v", sb)
}

func listFilters(p *pod) {
	id, other := p.sandbox(0), p.sandbox(1)
	runs, idle := p.started(id, Runs, 0), p.created(id, IgnoresTerm, 0)
	elsewhere := p.created(other, Runs, 1)
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	mine := map[string]string{"io.kubernetes.pod.uid": p.uid}
	p.lists(&runtimeapi.ContainerFilter{LabelSelector: mine}, runs, idle, elsewhere)
	p.lists(&runtimeapi.ContainerFilter{PodSandboxId: id}, runs, idle)
	p.lists(&runtimeapi.ContainerFilter{Id: idle}, idle)
	p.lists(&runtimeapi.ContainerFilter{LabelSelector: mine, State: state(isRunning)}, runs)
	p.lists(&runtimeapi.ContainerFilter{LabelSelector: mine, State: state(created)},
		idle, elsewhere)
	p.lists(&runtimeapi.ContainerFilter{Id: idle, PodSandboxId: other})
	p.lists(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		"io.kubernetes.pod.uid": p.uid, "io.kubernetes.container.name": string(Runs),
	}}, runs, elsewhere)
	p.lists(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		"io.kubernetes.pod.uid": p.uid, "absent": ""}})

	all := p.containers(nil)
	p.check(len(all) >= 3, "unfiltered: %d", len(all))
	p.stopSandbox(other)
	ready := p.mySandboxes()
	ready.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	listed := p.sandboxes(ready)
	p.check(len(listed) == 1 && listed[0].Id == id, "ready sandboxes: %v", listed)
}

func pullImage(p *pod) {
	ref, _ := p.w.Images()
	spec := &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: ref}
	before := must[*runtimeapi.ImageStatusResponse](p, &runtimeapi.ImageStatusRequest{Image: spec})
	p.check(before.Image == nil, "present before it was pulled: %v", before.Image)
	pulled := must[*runtimeapi.PullImageResponse](p, &runtimeapi.PullImageRequest{Image: spec})
	p.check(pulled.ImageRef != "", "no reference")
	after := must[*runtimeapi.ImageStatusResponse](p, &runtimeapi.ImageStatusRequest{Image: spec})
	p.check(after.GetImage().GetId() != "", "absent after it was pulled")
	list := must[*runtimeapi.ListImagesResponse](p, &runtimeapi.ListImagesRequest{})
	p.check(slices.ContainsFunc(list.Images, func(i *runtimeapi.Image) bool {
		return i.Id == after.GetImage().GetId() && i.Size > 0 && len(i.RepoTags) > 0
	}), "pulled and not listed: %v", list.Images)
}

func pullMissingImage(p *pod) {
	_, ref := p.w.Images()
	spec := &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: ref}
	_, err := p.w.Call(&runtimeapi.PullImageRequest{Image: spec})
	p.check(err != nil, "a missing image was pulled")
	s := must[*runtimeapi.ImageStatusResponse](p, &runtimeapi.ImageStatusRequest{Image: spec})
	p.check(s.Image == nil, "present: %v", s.Image)
}
