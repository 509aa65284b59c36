package csi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Search is the search for what earlier agents have staged and published: the mount table first,
// then the directories of pods and drivers, each named thing by itself.
type Search struct {
	Started bool `json:"started,omitempty"`
	// Passed reports whether everything was looked at once. What could not be read is looked at
	// again; until then nothing is unstaged that may be in use there (Node.hides).
	Passed bool   `json:"passed,omitempty"`
	Items  []Item `json:"items,omitempty"` // what is to be looked at
	// Mounts are the paths at which something is published, by the mount table, until the search is
	// complete.
	MountsKnown bool            `json:"mountsKnown,omitempty"`
	Mounts      map[string]bool `json:"mounts,omitempty"`
	// Found and Unread count the publications that were found, and those without readable data.
	Found  uint64 `json:"found,omitempty"`
	Unread uint64 `json:"unread,omitempty"`
	// Cleanings counts the removals of the latter that have ended, FailedCleanings those that failed.
	Cleanings       uint64 `json:"cleanings,omitempty"`
	FailedCleanings uint64 `json:"failedCleanings,omitempty"`
}

// Item is a part of the search.
type Item struct {
	Kind     ItemKind          `json:"kind"`
	Path     string            `json:"path"`
	UID      string            `json:"uid,omitempty"`    // of the pod
	Name     string            `json:"name,omitempty"`   // of the volume's directory
	Device   string            `json:"device,omitempty"` // of itemDevices: the block volume
	Op       world.OpID        `json:"op,omitempty"`
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
}

// ItemKind is what an item of the search looks at.
type ItemKind string

// The kinds of items.
const (
	itemMounts      ItemKind = "mounts"
	itemPods        ItemKind = "pods"        // the directory of all pods
	itemPod         ItemKind = "pod"         // the CSI volumes of one
	itemPublication ItemKind = "publication" // the data of one of them
	itemDrivers     ItemKind = "drivers"     // the directory of what is staged
	itemDriver      ItemKind = "driver"      // the volumes of one driver
	itemStaged      ItemKind = "staged"      // the data of one of them
	itemBlocks      ItemKind = "blocks"      // the directory of all block volumes
	itemBlock       ItemKind = "block"       // the data of one of them
	itemDevices     ItemKind = "devices"     // a directory with an entry for each of its pods
)

// searchMax bounds the operations of the search in flight.
const searchMax = 8

// SearchOwner is the key of the search.
var SearchOwner = timer.Key{Component: "csisearch"}

// Complete reports whether everything was looked at.
func (s *Search) Complete() bool { return s.Passed && len(s.Items) == 0 }

// mayFind reports whether something may still be found in the directory of a pod.
func (s *Search) mayFind(uid string) bool {
	return !s.Passed || slices.ContainsFunc(s.Items, func(i Item) bool {
		switch i.Kind {
		case itemPods, itemDrivers, itemBlocks, itemBlock, itemDevices:
			return true
		}
		return i.UID == uid
	})
}

// hides reports whether what the search could not read yet may be of a volume of a driver; nil: of
// one that is not known. A directory that can never be read holds no volume but those of its driver
// or of its pod: where the mount table shows nothing in the directory of the pod, there is none.
func (n *Node) hides(driver string, v *Volume) bool {
	if !n.Search.Passed {
		return true
	}
	isBlock, isFile := v == nil || v.Device != "", v == nil || v.Device == ""
	return slices.ContainsFunc(n.Search.Items, func(i Item) bool {
		switch i.Kind {
		case itemDrivers, itemBlocks:
			return isBlock
		case itemDriver, itemStaged:
			return strings.HasPrefix(i.Path+"/", n.Dir+"/"+driver+"/")
		case itemBlock:
			return v == nil || v.Device == i.Name
		case itemDevices:
			return v == nil || v.name() == i.Name
		case itemPod, itemPublication:
			return isFile && (v != nil && v.User == i.UID || n.Search.hasMount(&i))
		}
		return true
	})
}

// hasMount reports whether something is published in the directory of a pod that an item is about.
func (s *Search) hasMount(i *Item) bool {
	dir := i.Path
	if i.Kind == itemPublication {
		dir = path.Dir(i.Path)
	}
	for at := range s.Mounts { //ordered: whether there is one
		if strings.HasPrefix(at, dir+"/") {
			return true
		}
	}
	return false
}

// PlanSearch issues the next operations of the search, and returns when to plan again.
func (n *Node) PlanSearch(env *Env) time.Time {
	s := &n.Search
	var wake time.Time
	if !n.Enabled || s.Complete() {
		return wake
	}
	if !s.Started {
		s.Started = true
		s.Items = []Item{{Kind: itemMounts, Path: n.RootDir}}
	}
	inFlight, isNew := 0, false
	for i := range s.Items {
		item := &s.Items[i]
		if item.Op == 0 && inFlight < searchMax &&
			!item.Attempts.IsWaiting(env.Effects.Now(), &wake) {
			item.Op = env.Effects.Issue(SearchOwner, item.Path, fsTimeout, item.operation())
		}
		if item.Op != 0 {
			inFlight++
		}
		isNew = isNew || item.Attempts.Failures == 0
		if inFlight == searchMax {
			return wake // each completion causes a plan
		}
	}
	if !isNew && s.MountsKnown && !s.Passed {
		s.Passed = true
		n.finishSearch(env)
	}
	return wake
}

// finishSearch plans what has waited for the search.
func (n *Node) finishSearch(env *Env) {
	if n.Search.Complete() {
		n.Search.Mounts = nil
	}
	for _, name := range n.VolumeNames() {
		env.Enqueue(VolumeKey(name))
	}
	env.EnqueuePods()
	env.ReportsInUse()
}

// operation returns the operation that looks at an item.
func (i *Item) operation() any {
	switch i.Kind {
	case itemMounts:
		return &world.ListMounts{Path: i.Path}
	case itemPublication, itemStaged, itemBlock:
		return &world.ReadFiles{Path: i.Path, FilesMax: 1, BytesMax: dataMax}
	}
	return &world.ListDir{Path: i.Path}
}

// HandleSearchCompletion applies what was found. What does not exist has nothing to be found.
func (n *Node) HandleSearchCompletion(id world.OpID, ev world.Event, env *Env) {
	s := &n.Search
	i := slices.IndexFunc(s.Items, func(item Item) bool { return item.Op == id })
	if i < 0 {
		return
	}
	item := s.Items[i]
	isData := item.Kind == itemPublication || item.Kind == itemStaged || item.Kind == itemBlock
	read, isRead := ev.Body.(*world.FilesRead)
	if isRead && len(read.Files) == 1 && read.Files[0].Err != nil && !hadNoEffect(read.Files[0].Err) {
		ev.Err = read.Files[0].Err // the disk has failed, not the content
	}
	_, isTable := ev.Body.(*world.MountsListed)
	if ev.Err == nil && item.Kind == itemMounts && !isTable {
		ev.Err = world.Errorf(world.KindInternal, "ListMounts", "answered with another message")
	}
	if ev.Err != nil && !(ev.Err.Has(world.KindNotFound) && item.Kind != itemMounts) {
		s.Items[i].Op = 0
		if s.Items[i].Attempts.Fail(ev.Time, ev.Err.Message); s.Items[i].Attempts.Failures == 1 {
			env.Effects.Log(world.LevelWarning, "Failed to look for CSI volumes", "path", item.Path, "err",
				ev.Err.Message)
		}
		return
	}
	s.Items = slices.Delete(s.Items, i, i+1)
	switch body := ev.Body.(type) {
	case *world.MountsListed:
		n.noteMounts(body)
	case *world.DirListed:
		n.noteEntries(&item, body)
	case *world.FilesRead:
		n.noteData(&item, body, env)
	default:
		if isData {
			n.noteData(&item, &world.FilesRead{}, env)
		}
	}
	if s.Passed {
		n.finishSearch(env)
	}
}

// noteMounts keeps which paths of CSI volumes are mounted, and starts to look at directories.
func (n *Node) noteMounts(listed *world.MountsListed) {
	s := &n.Search
	s.MountsKnown, s.Mounts = true, map[string]bool{}
	for _, m := range listed.Mounts {
		isPublished := strings.HasPrefix(m.Path, n.PodsDir+"/") && strings.Contains(m.Path, volumesDir)
		isDevice := strings.HasPrefix(m.Path, n.blocksDir()+"/")
		if isPublished && path.Base(m.Path) == mountDir || isDevice {
			s.Mounts[m.Path] = true
		}
	}
	s.Items = append(s.Items, Item{Kind: itemPods, Path: n.PodsDir},
		Item{Kind: itemDrivers, Path: n.Dir})
}

// noteEntries adds what is in a directory to the search.
func (n *Node) noteEntries(item *Item, listed *world.DirListed) {
	s := &n.Search
	switch item.Kind {
	case itemBlocks:
		n.itemsOfBlocks(item, listed)
		return
	case itemDevices:
		n.noteDevices(item, listed)
		return
	}
	for _, entry := range listed.Entries {
		if !entry.Directory {
			continue
		}
		at := item.Path + "/" + entry.Name
		switch item.Kind {
		case itemPods:
			s.Items = append(s.Items, Item{Kind: itemPod, UID: entry.Name,
				Path: strings.TrimSuffix(at+volumesDir, "/")})
		case itemPod:
			s.Items = append(s.Items, Item{Kind: itemPublication, UID: item.UID, Name: entry.Name,
				Path: at + "/" + dataFile})
		case itemDrivers:
			switch entry.Name {
			case "pv": // of old kubelets
			case blocksDir:
				s.Items = append(s.Items, Item{Kind: itemBlocks, Path: at})
			default:
				s.Items = append(s.Items, Item{Kind: itemDriver, Path: at})
			}
		case itemDriver:
			s.Items = append(s.Items, Item{Kind: itemStaged, Path: at + "/" + dataFile})
		}
	}
}

// volumeData is what vol_data.json says.
type volumeData struct {
	Driver string `json:"driverName"`
	Handle string `json:"volumeHandle"`
	Mode   string `json:"volumeLifecycleMode"`
	Label  string `json:"seLinuxMountContext"`
}

// readData returns the data of a volume, and false if the file is missing or is none.
func readData(read *world.FilesRead) (volumeData, bool) {
	var data volumeData
	if len(read.Files) != 1 || read.Files[0].Err != nil ||
		json.Unmarshal(read.Files[0].Data, &data) != nil {
		return volumeData{}, false
	}
	if !selinux.IsLabel(data.Label) { // it is in no option of a mount
		data.Label = ""
	}
	return data, (&Use{Driver: data.Driver, Handle: data.Handle, SpecName: "-"}).check() == nil
}

// noteData records what was staged or published. A volume without readable data is not known: its
// publication is removed if nothing is mounted there, and nothing is done about what is staged.
func (n *Node) noteData(item *Item, read *world.FilesRead, env *Env) {
	data, ok := readData(read)
	name := UniqueName(data.Driver, data.Handle)
	// Uses that were declared before the search leave room for what it finds: earlier agents had the
	// same bound.
	if ok && n.Volumes[name] == nil && len(n.Volumes) >= 2*budget.CSIVolumesMax {
		ok = false
	}
	if !ok {
		env.Effects.Log(world.LevelWarning, "A directory of a CSI volume has no readable data", "path",
			item.Path)
		if item.Kind != itemPublication {
			return
		}
		n.Search.Unread++
		data, name = volumeData{}, unreadName
	}
	v := n.Volumes[name]
	if v == nil {
		v = n.addVolume(data.Driver, data.Handle, data.Mode == "Ephemeral")
	}
	if item.Kind == itemBlock {
		n.noteBlock(v, item, read)
		return
	}
	if item.Kind == itemStaged {
		if path.Dir(item.Path) == n.stagingDir(v) && v.Staging.State == "" {
			v.Staging = Staging{State: Uncertain, Dir: true, Label: data.Label}
			v.Staging.DataWritten = isContent(read, n.stagingData(v))
		}
		return
	}
	n.notePublication(v, item, read, data.Label)
}

// isContent reports whether a file has a content: then it is not written again.
func isContent(read *world.FilesRead, content []byte) bool {
	return len(read.Files) == 1 && bytes.Equal(read.Files[0].Data, content)
}

// notePublication records a publication that was found.
func (n *Node) notePublication(v *Volume, item *Item, read *world.FilesRead, label string) {
	target := TargetOf(item.UID, item.Name)
	if v.Publications[target] != nil {
		return
	}
	p := &Publication{UID: item.UID, SpecName: item.Name, State: Uncertain,
		Mounted: n.Search.Mounts[path.Dir(item.Path)+"/"+mountDir], DirMade: true, Label: label}
	p.DataWritten = isContent(read, n.publicationData(v, p))
	if v.Driver == "" {
		p.State = ""
	}
	if v.Publications == nil {
		v.Publications = map[string]*Publication{}
	}
	v.Publications[target] = p
	v.User = cmp.Or(v.User, item.UID)
	n.Owners.Add(item.UID, v.name())
	n.Search.Found++
}
