package loop

import (
	"path"
	"strings"

	"seedlet.dev/world"
)

// lockedPath is a path that an operation locks. The zero value locks nothing.
type lockedPath struct {
	scope  pathScope
	path   string
	isTree bool // what is below the path is locked too
}

// pathScope is the name space of a locked path. Paths of different scopes do not conflict.
type pathScope int

const (
	scopeHostPath   pathScope = iota + 1 // paths of pods' authors, which may hang, each alone
	scopeFilesystem                      // paths of the node whose file systems are measured
	scopeAgentFiles                      // the agent's files, as trees
	scopeCgroup                          // cgroups: a removal locks a tree, settings one cgroup
	scopeTarget                          // the disks of an iSCSI target, or one of fibre channel
)

// lockedPaths are the paths that an operation changes, and the host path that it accesses. Reads of
// the agent's own files and of cgroups lock nothing.
type lockedPaths [2]lockedPath

func pathsToLock(eff world.Effect) lockedPaths {
	if eff.HostPath != "" {
		paths := lockedPaths{{scope: scopeHostPath, path: eff.HostPath}}
		if changed := mountPoint(eff.Body); changed != "" {
			paths[1] = agentPath(changed) // nothing is removed there while a mount may still appear
		}
		return paths
	}
	switch body := eff.Body.(type) {
	case *world.MeasureFilesystem:
		// A pod may name the same path and never have an answer, or wait long for a slot of its own.
		return lockedPaths{{scope: scopeFilesystem, path: path.Clean(body.Path)}}
	case *world.FindSCSIDisks:
		return lockedPaths{{scope: scopeTarget, path: body.Unit.Key()}}
	case *world.RemoveSCSIDisks:
		// The kernel may take long, and end it late: until then no disk of the target is found.
		return lockedPaths{{scope: scopeTarget, path: body.Unit.Key()}}
	case *world.Rename:
		return lockedPaths{agentPath(body.From), agentPath(body.To)}
	case *world.Compress:
		return lockedPaths{agentPath(body.Path), agentPath(body.Path + ".gz")}
	case *world.SetCgroup:
		// The settings of a cgroup do not wait for operations below it. Those may take minutes for a
		// pod whose processes do not end, or whose memory has to be reclaimed; all pods that start wait
		// for the settings of the cgroups above them.
		return lockedPaths{{scope: scopeCgroup, path: path.Clean(body.Path)}}
	case *world.RemoveCgroup:
		return lockedPaths{{scope: scopeCgroup, path: path.Clean(body.Path), isTree: true}}
	}
	if changed := changedPath(eff.Body); changed != "" {
		return lockedPaths{agentPath(changed)}
	}
	return lockedPaths{}
}

// changedPath returns the path that an operation changes; empty if it changes none.
func changedPath(body any) string {
	switch body := body.(type) {
	case *world.MakeDir:
		return body.Path
	case *world.MakeFile:
		return body.Path
	case *world.MakeLink:
		return body.Path
	case *world.WriteFile:
		return body.Path
	case *world.WriteDir:
		return body.Path
	case *world.RemoveTree:
		return body.Path
	case *world.ShareWithGroup:
		return body.Path
	case *world.MountMemory:
		return body.Path
	case *world.BindSubPath:
		return body.Target
	case *world.ReleaseDevice:
		return body.Path
	}
	return mountPoint(body)
}

// mountPoint returns the path at which an operation mounts or unmounts a volume, or keeps a device
// open; empty if it does neither.
func mountPoint(body any) string {
	switch body := body.(type) {
	case *world.BindMount:
		return body.Path
	case *world.MountDevice:
		return body.Path
	case *world.MountNFS:
		return body.Path
	case *world.Unmount:
		return body.Path
	case *world.HoldDevice:
		return body.Path
	}
	return ""
}

func agentPath(p string) lockedPath {
	return lockedPath{scope: scopeAgentFiles, path: path.Clean(p), isTree: true}
}

// conflictsWith reports whether any path of one operation conflicts with a path of another.
func (ps lockedPaths) conflictsWith(others lockedPaths) bool {
	for _, p := range ps {
		for _, o := range others {
			if p.conflictsWith(o) {
				return true
			}
		}
	}
	return false
}

func (p lockedPath) conflictsWith(o lockedPath) bool {
	switch {
	case p.scope != o.scope || p.scope == 0:
		return false
	case p.path == o.path:
		return true
	}
	return o.isTree && isBelow(p.path, o.path) || p.isTree && isBelow(o.path, p.path)
}

// isBelow reports whether p is a descendant of other; both are clean.
func isBelow(p, other string) bool {
	return strings.HasPrefix(p, other) && p[len(other)] == '/'
}
