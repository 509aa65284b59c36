package core

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// planImages plans an image, or the records of their pulls.
func (a *Agent) planImages(key timer.Key) time.Time {
	if key == pullrecord.Owner {
		return a.state.Images.Records.Plan(&a.effects)
	}
	return a.planImage(key.Name)
}

// planImage plans an image. When its pull starts, the pods that wait for it are planned: they
// record the event.
func (a *Agent) planImage(name string) time.Time {
	images := &a.state.Images
	before, _ := images.PullInFlight(name)
	wake := images.Plan(name, &image.Env{Effects: &a.effects, Enqueue: a.queue.enqueue,
		PullsHeld: a.notReadyReason() != "", Sandbox: a.sandboxConfig,
		IsRemoving: a.state.ImageGC.IsRemoving})
	if started, waiters := images.PullInFlight(name); !started.Equal(before) {
		for _, w := range waiters {
			a.enqueuePod(w.UID)
		}
	}
	return wake
}

// sandboxConfig returns the configuration of a pod's sandbox; nil if the pod has none.
func (a *Agent) sandboxConfig(uid string) *runtimeapi.PodSandboxConfig {
	p := a.state.Pods[uid]
	if p == nil {
		return nil
	}
	previous := a.workOn(uid)
	config := p.SandboxConfig(a.podEnvFor(p))
	a.workOn(previous)
	return config
}

// handleImageCompletion handles the completion of an operation on an image.
func (a *Agent) handleImageCompletion(r op.Record, ev world.Event) {
	images := &a.state.Images
	for _, uid := range images.HandleCompletion(r.Owner.Name, r, ev, &a.effects) {
		a.enqueuePod(uid)
	}
	a.recordPull(r, ev)
	a.enqueueImages(images.Head().Names)
}

// handlePullRecordCompletion handles the completion of an operation on the records of pulls.
func (a *Agent) handlePullRecordCompletion(r op.Record, ev world.Event) {
	uids, names := a.state.Images.HandleRecordCompletion(r, ev, &a.effects)
	for _, uid := range uids {
		a.enqueuePod(uid)
	}
	a.enqueueImages(names)
}

func (a *Agent) enqueueImages(names []string) {
	for _, name := range names {
		a.queue.enqueue(image.Key(name))
	}
}

// reconcileRecords compares the records of pulls with a list of the images, whichever component has
// asked for it.
func (a *Agent) reconcileRecords(r op.Record, ev world.Event) {
	listed, isList := ev.Body.(*runtimeapi.ListImagesResponse)
	if !isList || ev.Err != nil {
		return
	}
	names := map[string][]string{}
	for _, found := range listed.Images {
		names[found.GetId()] = slices.Concat(found.GetRepoTags(), found.GetRepoDigests())
	}
	records := &a.state.Images.Records
	if records.Reconcile(names, r.IssuedAt, a.state.Now, a.effects.Date()) {
		a.enqueueImages(a.state.Images.Names())
	}
}

// pullRecordSettings returns the settings of the records of pulls.
func pullRecordSettings(c *kubeletconfig.KubeletConfiguration) pullrecord.Settings {
	if !config.PullRecordsEnabled(c) {
		return pullrecord.Settings{}
	}
	return pullrecord.SettingsFromConfig(c)
}

// saveRecords has the records of pulls planned if a plan or an event has changed them.
func (a *Agent) saveRecords() {
	if a.state.Images.Records.Changed {
		a.queue.enqueue(pullrecord.Owner)
	}
}
