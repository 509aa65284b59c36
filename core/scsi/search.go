package scsi

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Search is the search for the disks of earlier agents, or kubelets: by the mount table, and by
// directories, since after a loss of power nothing is mounted, and the directories are there. A
// machine on which no disk was ever set up is not searched.
type Search struct {
	Complete   bool            `json:"complete,omitempty"`
	Op         world.OpID      `json:"op,omitempty"`
	MountsSeen bool            `json:"mountsSeen,omitempty"`
	Mounts     map[string]bool `json:"mounts,omitempty"` // the paths below the directory of disks
	Dirs       []string        `json:"dirs,omitempty"`   // below it, which are to be listed
	// Marks are the WWIDs in the marks of disks, by the names of the disks.
	Marks    map[string][]string `json:"marks,omitempty"`
	Attempts volumeop.Attempts   `json:"attempts,omitzero"`
}

// Start begins the search, if there is anything to be found.
func (n *Node) Start(hasVolumes bool) {
	n.Search.Complete = !hasVolumes
	if hasVolumes {
		n.Search.Dirs = []string{iscsiDir, fcDir}
	}
}

// PlanSearch issues the next operation of the search, and returns when to plan again.
func (n *Node) PlanSearch(env *Env) time.Time {
	s := &n.Search
	var wake time.Time
	if s.Complete || s.Op != 0 || s.Attempts.IsWaiting(env.Effects.Now(), &wake) {
		return wake
	}
	var body any = &world.ListMounts{Path: n.RootDir}
	if s.MountsSeen {
		body = &world.ListDir{Path: n.Dir + "/" + s.Dirs[0]}
	}
	s.Op = env.Effects.Issue(SearchOwner, "", fsTimeout, body)
	return wake
}

// HandleSearchCompletion applies what was found. What does not exist has nothing to be found.
func (n *Node) HandleSearchCompletion(ev world.Event, env *Env) {
	s := &n.Search
	s.Op = 0
	mounts, isTable := ev.Body.(*world.MountsListed)
	dir, isDir := ev.Body.(*world.DirListed)
	if ev.Err == nil && (s.MountsSeen && !isDir || !s.MountsSeen && !isTable) {
		ev.Err = world.Errorf(world.KindInternal, "ListDir", "answered with another message")
	}
	isOptional := s.MountsSeen && (ev.Err.Has(world.KindNotFound) || isMark(s.Dirs[0]))
	switch {
	case ev.Err != nil && !isOptional:
		if s.Attempts.Fail(ev.Time, ev.Err.Message); s.Attempts.Failures == 1 {
			env.Effects.Log(world.LevelWarning, "Failed to look for disks of networks", "err",
				ev.Err.Message)
		}
		return
	case isTable:
		s.MountsSeen = true
		for i := range mounts.Mounts {
			if name, isBelow := strings.CutPrefix(mounts.Mounts[i].Path, n.Dir+"/"); isBelow {
				if s.Mounts == nil {
					s.Mounts = map[string]bool{}
				}
				s.Mounts[name] = true
			}
		}
	default:
		at := s.Dirs[0]
		s.Dirs = s.Dirs[1:]
		if isDir {
			n.applyDir(at, dir.Entries, ev.Time)
		}
	}
	s.Attempts = volumeop.Attempts{}
	if len(s.Dirs) > 0 {
		return
	}
	for name, ids := range s.Marks { //ordered: each by itself
		d := n.Disks[name]
		if d == nil { // a mount that has failed has removed its directory
			d = n.addFound(name, ev.Time)
		}
		if d.Taken, d.Marked = true, true; len(ids) == 1 {
			d.IDs, d.MarkedID = ids, ids[0]
		}
	}
	*s = Search{Complete: true}
	for _, name := range n.Names() {
		env.Enqueue(DiskKey(name))
	}
	env.EnqueuePods()
	env.ReportsInUse()
}

// applyDir applies a directory: that of all disks or all block disks, of an interface, of a mark,
// or of a block disk, which has a file for each pod.
func (n *Node) applyDir(at string, entries []world.DirEntry, now time.Time) {
	for _, entry := range entries {
		name := at + "/" + entry.Name
		_, isDisk := sourceOfName(name)
		switch {
		case isMark(at):
			if entry.Directory && idName.MatchString(entry.Name) {
				disk := markedDisk(at)
				n.Search.Marks[disk] = append(n.Search.Marks[disk], entry.Name)
			}
		case entry.Directory && isMark(name):
			if n.Search.Marks == nil {
				n.Search.Marks = map[string][]string{}
			}
			n.Search.Marks[markedDisk(name)] = nil
			n.Search.Dirs = append(n.Search.Dirs, name)
		case strings.HasPrefix(name, marksDir+"/") && name != marksDir+"/"+blocksDir:
			// Not a mark: no disk has this name.
		case entry.Directory && (name == marksDir || name == marksDir+"/"+blocksDir):
			n.Search.Dirs = append(n.Search.Dirs, name)
		case n.Disks[at] != nil:
			if entry.Name != dataFile {
				n.note(n.Disks[at], entry.Name)
				n.Disks[at].Bound[entry.Name].Mounted = n.Search.Mounts[name]
			}
		case isDisk && entry.Directory:
			if n.addFound(name, now).Block {
				n.Search.Dirs = append(n.Search.Dirs, name)
			}
		case entry.Directory && (isBlockName(name+"/") || strings.HasPrefix(entry.Name, ifaceDir)):
			n.Search.Dirs = append(n.Search.Dirs, name)
		}
	}
}

// markedDisk returns the name that a disk has if its mark is at a path.
func markedDisk(at string) string { return fcDir + strings.TrimPrefix(at, marksDir) }

// isMark reports whether a path is that of the mark of a disk. One that cannot be listed says that
// the disk is taken, and not which one it is.
func isMark(at string) bool {
	_, isDisk := sourceOfName(markedDisk(at))
	return isDisk && strings.HasPrefix(at, marksDir+"/")
}

// addFound adds a disk that was found, and returns it. A command of an earlier agent may still have
// an effect, also if the disk is mounted: the scan that has found it need not have been the only
// one.
func (n *Node) addFound(name string, now time.Time) *Disk {
	s, _ := sourceOfName(name)
	d := n.add(name, s)
	d.Found, d.MayExist, d.LateUntil = true, true, now.Add(lateMax)
	if n.Search.Mounts[name] {
		d.Mounted, d.Taken = Done, s.IsFC
	}
	return d
}

// VolumesInUse returns the names of the volumes that are not to be detached from the node, sorted.
// Those that the Node names stay while it is searched. Of a disk that was found only a part of the
// name is known: the Node may have it with or without the port. One that was unmounted and removed
// is only looked for once more.
func (n *Node) VolumesInUse(node *v1.Node) []v1.UniqueVolumeName {
	inUse := map[v1.UniqueVolumeName]bool{}
	known := map[string][]v1.UniqueVolumeName{}
	for _, named := range node.Status.VolumesInUse {
		name := comparableName(string(named))
		known[name] = append(known[name], named)
		if !n.Search.Complete && (strings.HasPrefix(string(named), iscsiPluginName) ||
			strings.HasPrefix(string(named), fcPluginName)) {
			inUse[named] = true
		}
	}
	for _, d := range n.Disks { //ordered: into a set
		for _, u := range d.Uses { //ordered: into a set
			inUse[v1.UniqueVolumeName(u.Unique)] = true
		}
		if len(d.Uses) > 0 || !d.MayExist || d.Detached && d.Mounted == "" && len(d.Bound) == 0 {
			continue
		}
		for _, unique := range d.uniqueNames() {
			for _, named := range known[comparableName(unique)] {
				inUse[named] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(inUse))
}

// comparableName returns the name of a volume without what the directory of a fibre channel disk
// does not tell: whether a dash is within a WWID or between two, and which underscores are spaces.
func comparableName(name string) string {
	if !strings.HasPrefix(name, fcPluginName) {
		return name
	}
	return asOnDisk.Replace(name)
}

var asOnDisk = strings.NewReplacer("[", "", "]", "", " ", "-", "_", "-")
