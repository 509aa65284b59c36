package disk

import (
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// setGroupID makes new files in a directory belong to the directory's group.
const setGroupID = 0o2000

// agentUID is the user of the agent, root.
const agentUID = 0

// shareWithGroup changes some of the entries of the root first, and the rest a little later. The
// root is changed last, so a root with the right mode and group means that the whole tree is done.
func (d *Disk) shareWithGroup(call *wire.Call, req *world.ShareWithGroup) {
	at, err := d.resolve(call.Name, req.Path, false)
	switch {
	case err != nil:
	case at.node == nil:
		err = notFound(call.Name, req.Path)
	case at.node.kind == kindLink:
		err = world.Errorf(world.KindInvalid, call.Name, "%s is a link", req.Path)
	case req.OnRootMismatch && at.node.mode == at.node.sharedMode(req.ReadOnly) &&
		at.node.gid == req.GID:
		d.complete(call, nil)
		return
	}
	if err != nil {
		call.Fail(err)
		return
	}
	if n := len(at.node.entries); n > 0 {
		for _, e := range at.node.entries[:call.Draw()%uint64(n+1)] {
			if e.node.mountCount == 0 {
				d.share(e.node, req.GID, req.ReadOnly)
			}
		}
	}
	d.continueLater(call, func() {
		d.share(at.node, req.GID, req.ReadOnly)
		d.complete(call, nil)
	})
}

// share changes a tree, the content of a directory before the directory. It does not enter mounts.
func (d *Disk) share(n *node, gid int64, readOnly bool) {
	for _, e := range n.entries {
		if e.node.mountCount == 0 {
			d.share(e.node, gid, readOnly)
		}
	}
	d.shareNode(n, gid, readOnly)
}

func (d *Disk) shareNode(n *node, gid int64, readOnly bool) {
	to := n.content
	to.gid = gid
	if n.kind != kindLink {
		to.mode = n.sharedMode(readOnly)
	}
	if to.mode != n.mode || to.gid != n.gid {
		d.setContent(n, to)
	}
}

func (n *node) sharedMode(readOnly bool) uint32 {
	mode := n.mode | 0o660
	if readOnly {
		mode = n.mode | 0o440
	}
	if n.isDir() {
		mode |= 0o110 | setGroupID
	}
	return mode
}
