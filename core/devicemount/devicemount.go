// Package devicemount unmounts block devices of local volumes that no pod uses any more.
//
// A device is mounted once for all pods (package volume), and each pod has a bind mount of it.
// Facts: which devices may be mounted, from the mount table: an earlier agent may have mounted
// them, for pods that have gone since. Plan: a look at the mount table after the start and after
// the end of a pod, then one unmount at a time. A device is in use while a file system of it is
// mounted for a pod, or a known pod has its volume. Like housekeeping, nothing is unmounted before
// all sources and the runtime were listed. Start reading at Devices.Plan.
//
// The devices that containers get themselves, of volumes of volumeMode Block, are bound for each
// pod and taken away for each: blocks.go. Start reading at Blocks.Plan.
package devicemount

import (
	"path"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	timeout     = 2 * time.Minute
	retryPeriod = time.Minute // after a failure, and of looks for late mounts
	// lateMax is how long a mount that has timed out is looked for, and lateOfEarlierMax one that an
	// earlier agent may have had in flight.
	lateMax          = time.Hour
	lateOfEarlierMax = 5 * time.Minute
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "device-mounts"}

// Devices is the state of the search for devices that are not used, and of their removal.
type Devices struct {
	RootDir string     `json:"rootDir"` // of the kubelet
	Dir     string     `json:"dir"`     // below it: where devices are mounted, by their volumes
	Op      world.OpID `json:"op,omitempty"`
	// Looked is set once the mount table was seen, and Again if it is to be seen again since then.
	Looked bool `json:"looked,omitempty"`
	Again  bool `json:"again,omitempty"`
	// MayExist is set while a device may be mounted.
	MayExist bool `json:"mayExist,omitempty"`
	// Unused are the volumes whose devices no pod uses, by the mount table. Unmounted is set once the
	// first of them is unmounted.
	Unused    []string  `json:"unused,omitempty"`
	Unmounted bool      `json:"unmounted,omitempty"`
	NotBefore time.Time `json:"notBefore"` // of the next look after a failure
	LastError string    `json:"lastError,omitempty"`
	// LateUntil is until when a mount that has timed out, or that an earlier agent had in flight, may
	// take effect, for a pod that may have gone; NextLook is when the mount table is looked at for it.
	LateUntil time.Time `json:"lateUntil,omitzero"`
	NextLook  time.Time `json:"nextLook,omitzero"`
}

// NoteMount records that a device may have been mounted.
func (d *Devices) NoteMount() { d.MayExist = true }

// NoteLateMount records that a device may still be mounted, by an operation that has timed out.
func (d *Devices) NoteLateMount(now time.Time) {
	d.MayExist, d.LateUntil, d.NextLook = true, now.Add(lateMax), now.Add(retryPeriod)
}

// NoteUnmount records that a pod has let go of its volumes, and reports whether to plan.
func (d *Devices) NoteUnmount() bool {
	d.Again = d.Again || d.MayExist
	return d.Again
}

// Plan takes the next step, and returns when to be called again. isNeeded reports whether a known
// pod has a volume.
func (d *Devices) Plan(isNeeded func(volume string) bool, effects *op.Effects) time.Time {
	switch {
	case d.Op != 0:
		return time.Time{}
	case effects.Now().Before(d.NotBefore) && len(d.Unused) == 0:
		return d.NotBefore
	}
	for len(d.Unused) > 0 {
		at := d.Dir + "/" + d.Unused[0]
		switch {
		case isNeeded(d.Unused[0]): // by a pod that has come meanwhile
			d.Unused, d.Unmounted = d.Unused[1:], false
		case d.Unmounted:
			d.Op = effects.Issue(Owner, d.Unused[0], timeout, &world.RemoveTree{Path: at})
			return time.Time{}
		default:
			effects.Log(world.LevelInfo, "Unmounting a device that no pod uses", "path", at)
			d.Op = effects.Issue(Owner, d.Unused[0], timeout, &world.Unmount{Path: at})
			return time.Time{}
		}
	}
	now := effects.Now()
	if !d.Looked {
		d.LateUntil = now.Add(lateOfEarlierMax)
	}
	isLate := now.Before(d.LateUntil)
	if !d.Looked || d.Again || isLate && !now.Before(d.NextLook) {
		d.Looked, d.Again, d.NextLook = true, false, now.Add(retryPeriod)
		d.Op = effects.Issue(Owner, "", timeout, &world.ListMounts{Path: d.RootDir})
		return time.Time{}
	}
	if isLate {
		return d.NextLook
	}
	return time.Time{}
}

// HandleCompletion handles the completion of an operation that Plan issued.
func (d *Devices) HandleCompletion(record op.Record, ev world.Event, effects *op.Effects) {
	d.Op = 0
	if ev.Err != nil {
		effects.Log(world.LevelWarning, "A device cannot be unmounted", "volume", record.Subject, "err",
			ev.Err.Error())
		d.LastError, d.Again, d.Unmounted = ev.Err.Error(), true, false
		if len(d.Unused) > 0 { // the others do not stay mounted because of this one
			d.Unused = d.Unused[1:]
		}
		d.NotBefore = ev.Time.Add(retryPeriod)
		return
	}
	switch body := ev.Body.(type) {
	case *world.MountsListed:
		d.LastError = ""
		d.find(body.Mounts)
	default:
		if d.Unmounted = record.Call == "Unmount"; !d.Unmounted {
			d.Unused = d.Unused[1:]
		}
	}
}

// find finds the devices in the mount table of which nothing is mounted for a pod.
func (d *Devices) find(mounts []world.Mount) {
	used := map[string]bool{} // devices
	for i := range mounts {
		if !strings.HasPrefix(mounts[i].Path, d.Dir+"/") {
			used[mounts[i].Device] = true
		}
	}
	d.MayExist, d.Unused = false, nil
	for i := range mounts {
		m := &mounts[i]
		if path.Dir(m.Path) != d.Dir {
			continue
		}
		d.MayExist = true
		if !used[m.Device] {
			d.Unused = append(d.Unused, path.Base(m.Path))
		}
	}
}
