package core

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// planImage plans an image. Who waits for it tells that its pull has begun.
func (a *Agent) planImage(name string) time.Time {
	images := &a.state.Images
	before, _ := images.Pulling(name)
	wake := images.Plan(name, a.notReady() != "", &a.out, a.touched.add)
	if began, waiters := images.Pulling(name); !began.Equal(before) {
		for _, w := range waiters {
			a.touchPod(w.UID)
		}
	}
	return wake
}

// imageAnswered takes what the runtime says of an image.
func (a *Agent) imageAnswered(r op.Record, ev world.Event) {
	images := &a.state.Images
	for _, uid := range images.Answered(r.Owner.Name, r, ev, &a.out) {
		a.touchPod(uid)
	}
	a.countPull(r, ev)
	if key, waits := images.Next(); waits {
		a.touched.add(key)
	}
}
