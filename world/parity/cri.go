package parity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// CRI runs the suite of the CRI port. Each case creates and removes its own pods. The second case
// pulls an image, which may be the one that all later cases use.
func CRI(t *testing.T, w Runtime) {
	runCases(t, w, 0, []criCase{
		{"the runtime reports its version and conditions", versionAndStatus},
		{"an absent image has an empty status and can be pulled", pullImage},
		{"a sandbox is ready and listed", sandboxIsReady},
		{"a sandbox name is reserved until the sandbox is removed", sandboxNameIsReserved},
		{"a sandbox name is reserved during the creation", concurrentRunPodSandbox},
		{"two attempts of a sandbox can coexist", sandboxAttempts},
		{"a stopped sandbox is not ready and has no address", stoppedSandbox},
		{"stopping a sandbox kills its containers", stoppingSandboxKills},
		{"stopping and removing an unknown object succeeds or is NotFound", stopAndRemoveUnknown},
		{"the status of an unknown object is NotFound", unknownStatus},
		{"a sandbox ID is not a container ID", idKindsAreSeparate},
		{"creating a container in an unknown or stopped sandbox fails", createWithoutReadySandbox},
		{"a container name is reserved until the container is removed", containerNameIsReserved},
		{"a container name is unique in the pod, not in the sandbox", containerNameIsPerPod},
		{"a container cannot be created without its image", createWithoutImage},
		{"an exited container has consistent states and times", exitsByItself},
		{"a container that exits with code 0 has the reason Completed", exitsWithZero},
		{"a running container has no finish time", runningHasNoEnd},
		{"a container can be started once", startsOnce},
		{"starting an unknown container is NotFound", startUnknown},
		{"starting a container in a stopped sandbox exits it", startInStoppedSandbox},
		{"TERM ends a container with code 143", stopByTerm},
		{"a process can handle TERM", stopHandled},
		{"KILL ends a container with code 137 after the grace period", stopByKill},
		{"a grace period of zero sends KILL at once", stopWithoutGrace},
		{"a second stop with a shorter grace period does not wait for the first", stopTwice},
		{"stopping a container that does not run succeeds", stopNotRunning},
		{"a canceled stop fails at once, and a shorter one ends the container", cancelStop},
		{"removing a running container kills it", removeRunning},
		{"a container that does not run can be removed", removeNotRunning},
		{"removing a sandbox removes its containers", removeSandboxWithContainers},
		{"lists are filtered", listFilters},
		{"labels, annotations and metadata are returned", metadataComesBack},
		{"a missing image cannot be pulled", pullMissingImage},
		{"the file system of the images is known", imageFilesystem},
		{"an image that a container uses can be removed, and be pulled again", removeUsedImage},
		{"removing a missing image succeeds", removeMissingImage},
	})
}

// criCase is one rule for the runtime.
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

func versionAndStatus(p *pod) {
	v := must[*runtimeapi.VersionResponse](p, &runtimeapi.VersionRequest{})
	p.check(v.RuntimeApiVersion == "v1" && v.RuntimeName != "", "version %v", v)
	// containerd 1.6 does not know this call.
	_, err := p.w.Call(&runtimeapi.RuntimeConfigRequest{})
	p.check(err == nil || err.Has(world.KindUnimplemented), "RuntimeConfig: %v", err)
	for _, ranges := range []string{"10.1.0.0/24", "", "10.1.0.0/24,2001:db8::/64", "x"} {
		_, err := p.w.Call(&runtimeapi.UpdateRuntimeConfigRequest{
			RuntimeConfig: &runtimeapi.RuntimeConfig{
				NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: ranges}}})
		p.check(err == nil && ranges != "x" || ranges == "x" && err.Has(world.KindInternal),
			"UpdateRuntimeConfig of %q: %v", ranges, err)
	}
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
	id := p.createSandbox(0)
	s := p.sandboxStatus(id)
	p.check(s.State == runtimeapi.PodSandboxState_SANDBOX_READY, "state %v", s.State)
	p.check(s.GetNetwork().GetIp() != "", "no address: %v", s.Network)
	created := time.Unix(0, s.CreatedAt)
	p.check(!created.Before(before) && !created.After(p.w.Now()), "created at %v", created)
	listed := p.sandboxes(&runtimeapi.PodSandboxFilter{Id: id})
	p.check(len(listed) == 1 && listed[0].State == s.State, "listed %v", listed)
}

func sandboxNameIsReserved(p *pod) {
	id := p.createSandbox(0)
	p.mustFail(p.sandboxRequest(0), world.KindExists)
	p.stopSandbox(id)
	p.mustFail(p.sandboxRequest(0), world.KindExists)
	p.removeSandbox(id)
	p.check(p.createSandbox(0) != id, "the ID was reused")
}

func concurrentRunPodSandbox(p *pod) {
	waitA := p.w.Begin(p.sandboxRequest(0))
	waitB := p.w.Begin(p.sandboxRequest(0))
	bodyA, errA := waitA()
	bodyB, errB := waitB()
	if errA != nil {
		bodyA, bodyB, errB = bodyB, bodyA, errA
	}
	p.check(bodyA != nil && bodyB == nil && errB.Has(world.KindExists),
		"two calls at once: %v, %v", errA, errB)
	p.check(len(p.sandboxes(p.ownSandboxes())) == 1, "not exactly one sandbox")
}

func sandboxAttempts(p *pod) {
	first, second := p.createSandbox(0), p.createSandbox(1)
	listed := p.sandboxes(p.ownSandboxes())
	p.check(first != second && len(listed) == 2, "listed %v", listed)
}

func stoppedSandbox(p *pod) {
	id := p.createSandbox(0)
	p.stopSandbox(id)
	s := p.sandboxStatus(id)
	p.check(s.State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY, "state %v", s.State)
	p.check(s.GetNetwork().GetIp() == "", "address %q", s.GetNetwork().GetIp())
	p.stopSandbox(id)
}

func stoppingSandboxKills(p *pod) {
	id := p.createSandbox(0)
	runs, idle := p.startNewContainer(id, Runs, 0), p.createContainer(id, IgnoresTerm, 0)
	p.stopSandbox(id)
	s := p.status(runs)
	p.check(s.State == exited && s.ExitCode == 137, "running container: %v %d", s.State, s.ExitCode)
	p.check(p.status(idle).State == created, "created container: %v", p.status(idle).State)
}

const unknownID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func stopAndRemoveUnknown(p *pod) {
	for _, body := range []any{
		&runtimeapi.StopContainerRequest{ContainerId: unknownID, Timeout: 1},
		&runtimeapi.RemoveContainerRequest{ContainerId: unknownID},
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: unknownID},
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: unknownID},
	} {
		_, err := p.w.Call(body) // containerd 1.6 returns NotFound
		p.check(err == nil || err.Has(world.KindNotFound), "%s: %v", world.CallName(body), err)
	}
}

func unknownStatus(p *pod) {
	p.mustFail(&runtimeapi.ContainerStatusRequest{ContainerId: unknownID}, world.KindNotFound)
	p.mustFail(&runtimeapi.PodSandboxStatusRequest{PodSandboxId: unknownID}, world.KindNotFound)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{Id: unknownID})) == 0, "found in the list")
	p.check(len(p.sandboxes(&runtimeapi.PodSandboxFilter{Id: unknownID})) == 0, "found in the list")
}

func idKindsAreSeparate(p *pod) {
	id := p.createSandbox(0)
	container := p.createContainer(id, Runs, 0)
	p.mustFail(&runtimeapi.ContainerStatusRequest{ContainerId: id}, world.KindNotFound)
	p.mustFail(&runtimeapi.PodSandboxStatusRequest{PodSandboxId: container}, world.KindNotFound)
	must[*runtimeapi.RemoveContainerResponse](p, &runtimeapi.RemoveContainerRequest{
		ContainerId: id})
	must[*runtimeapi.RemovePodSandboxResponse](p, &runtimeapi.RemovePodSandboxRequest{
		PodSandboxId: container})
	p.check(p.sandboxStatus(id).State == runtimeapi.PodSandboxState_SANDBOX_READY, "sandbox")
	p.check(p.status(container).State == created, "container")
}

func metadataComesBack(p *pod) {
	id := p.createSandbox(0)
	container := p.createContainer(id, Runs, 7)
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
	id, other := p.createSandbox(0), p.createSandbox(1)
	runs, idle := p.startNewContainer(id, Runs, 0), p.createContainer(id, IgnoresTerm, 0)
	elsewhere := p.createContainer(other, Runs, 1)
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	mine := map[string]string{"io.kubernetes.pod.uid": p.uid}
	p.expectList(&runtimeapi.ContainerFilter{LabelSelector: mine}, runs, idle, elsewhere)
	p.expectList(&runtimeapi.ContainerFilter{PodSandboxId: id}, runs, idle)
	p.expectList(&runtimeapi.ContainerFilter{Id: idle}, idle)
	p.expectList(&runtimeapi.ContainerFilter{LabelSelector: mine, State: state(isRunning)}, runs)
	p.expectList(&runtimeapi.ContainerFilter{LabelSelector: mine, State: state(created)},
		idle, elsewhere)
	p.expectList(&runtimeapi.ContainerFilter{Id: idle, PodSandboxId: other})
	p.expectList(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		"io.kubernetes.pod.uid": p.uid, "io.kubernetes.container.name": string(Runs),
	}}, runs, elsewhere)
	p.expectList(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		"io.kubernetes.pod.uid": p.uid, "absent": ""}})

	all := p.containers(nil)
	p.check(len(all) >= 3, "unfiltered: %d", len(all))
	p.stopSandbox(other)
	ready := p.ownSandboxes()
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
