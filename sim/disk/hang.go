package disk

import (
	"path"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Hang makes a path and everything below it hang, as a network file system does whose server does
// not respond, or, given the source of a mount, such a file system wherever it is mounted. Calls on
// the path complete after as many calls of Resume as of Hang.
func (d *Disk) Hang(p string) { d.hung[path.Clean(p)]++ }

// Resume undoes one Hang. It does nothing if the path does not hang.
func (d *Disk) Resume(p string) {
	p = path.Clean(p)
	if d.hung[p]--; d.hung[p] <= 0 {
		delete(d.hung, p)
		d.retryStuck()
	}
}

// ResumeAll undoes every Hang.
func (d *Disk) ResumeAll() {
	clear(d.hung)
	d.retryStuck()
}

// retryStuck executes the stuck calls whose path no longer hangs.
func (d *Disk) retryStuck() {
	waiting := d.stuck
	d.stuck = nil
	for _, call := range waiting {
		if d.isHung(call) && !call.HasPortDied() {
			d.stuck = append(d.stuck, call)
		} else if d.decideToContinue(call) {
			d.execute(call)
		}
	}
}

// isHung reports whether a call accesses a path that hangs.
func (d *Disk) isHung(call *wire.Call) bool {
	if len(d.hung) == 0 {
		return false
	}
	if d.isSourceHung(call.Effect.Body) {
		return true
	}
	p := targetPath(call.Effect.Body)
	at, _ := d.resolve(call.Name, p, true)
	for hung := range d.hung { //ordered: whether there is one
		if within(p, hung) || within(at.path, hung) {
			return true
		}
	}
	return false
}

// isSourceHung reports whether a call mounts a file system whose server does not respond, or
// reaches into it.
func (d *Disk) isSourceHung(body any) bool {
	switch req := body.(type) {
	case *world.MountNFS:
		return d.hung[path.Clean(req.Source())] > 0
	case *world.ReadInVolume:
		at, _ := d.resolve("", req.Root, true)
		return d.isHungMount(at.nodeMount)
	}
	at, _ := d.resolve("", targetPath(body), true)
	return d.isHungMount(at.nodeMount)
}

// isHungMount reports whether a mount is of a source that hangs.
func (d *Disk) isHungMount(m *mount) bool { return m != nil && d.hung[path.Clean(m.source)] > 0 }

// targetPath returns the path of a call that may access paths outside the agent's own directories.
func targetPath(body any) string {
	switch req := body.(type) {
	case *world.MeasureFilesystem:
		return path.Clean(req.Path)
	case *world.StatPath:
		return path.Clean(req.Path)
	case *world.MakeDir:
		return path.Clean(req.Path)
	case *world.MakeFile:
		return path.Clean(req.Path)
	case *world.ListDir:
		return path.Clean(req.Path)
	case *world.ReadFiles:
		return path.Clean(req.Path)
	case *world.BindSubPath:
		return path.Join(req.Root, req.SubPath)
	case *world.BindMount:
		return path.Clean(req.Source)
	}
	return ""
}
