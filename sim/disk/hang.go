package disk

import (
	"path"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Hang has a path, and all that is below it, hang as a file system does whose server does not
// answer: calls that go there end when it has been told to go on as often as to hang.
func (d *Disk) Hang(p string) { d.hung[path.Clean(p)]++ }

// GoOn undoes one Hang. Going on with what does not hang does nothing.
func (d *Disk) GoOn(p string) {
	p = path.Clean(p)
	if d.hung[p]--; d.hung[p] <= 0 {
		delete(d.hung, p)
		d.retry()
	}
}

// GoOnAll undoes every Hang.
func (d *Disk) GoOnAll() {
	clear(d.hung)
	d.retry()
}

// retry carries out what was stuck and is not any more.
func (d *Disk) retry() {
	waiting := d.stuck
	d.stuck = nil
	for _, call := range waiting {
		if d.hangs(call) && !call.PortDied() {
			d.stuck = append(d.stuck, call)
		} else if d.goesOn(call) {
			d.carryOut(call)
		}
	}
}

// hangs says whether a call goes to where it hangs.
func (d *Disk) hangs(call *wire.Call) bool {
	if len(d.hung) == 0 {
		return false
	}
	p := goal(call.Effect.Body)
	at, _ := d.look(call.Name, p, true)
	for hung := range d.hung { //ordered: whether there is one
		if within(p, hung) || within(at.path, hung) {
			return true
		}
	}
	return false
}

// goal is where a call goes that can leave the agent's own directories.
func goal(body any) string {
	switch req := body.(type) {
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
	}
	return ""
}
