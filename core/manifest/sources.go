package manifest

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The owners of the operations of the sources.
var (
	Owner    = timer.Key{Component: "manifests"}
	URLOwner = timer.Key{Component: "manifests", Name: string(OriginHTTP)}
)

// Sources are all sources of static pods.
type Sources struct {
	File Source `json:"file"`
	HTTP Source `json:"http"`
}

// NewSources returns the sources of a node's configuration. The path is that of a directory or a
// file.
func NewSources(c *kubeletconfig.KubeletConfiguration, manifests, node string) Sources {
	if manifests != "" {
		manifests = path.Clean(manifests)
	}
	s := Sources{
		File: Source{Origin: OriginFile, Path: manifests, Node: node,
			Period: c.FileCheckFrequency.Duration},
		HTTP: Source{Origin: OriginHTTP, URL: c.StaticPodURL, Node: node,
			Period: c.HTTPCheckFrequency.Duration},
	}
	for _, name := range slices.Sorted(maps.Keys(c.StaticPodURLHeader)) {
		for _, value := range c.StaticPodURLHeader[name] {
			s.HTTP.Headers = append(s.HTTP.Headers, world.HTTPHeader{Name: name, Value: value})
		}
	}
	return s
}

// ordered returns the sources by precedence.
func (s *Sources) ordered() [2]*Source { return [2]*Source{&s.File, &s.HTTP} }

func (s *Sources) byOwner(owner timer.Key) *Source {
	if owner == URLOwner {
		return &s.HTTP
	}
	return &s.File
}

// Ready reports whether each source has been read at least once. Before that the absence of a pod
// has no meaning.
func (s *Sources) Ready() bool { return s.File.Ready && s.HTTP.Ready }

// Plan plans the source with the given key, and returns when to plan again.
func (s *Sources) Plan(key timer.Key, effects *op.Effects) time.Time {
	return s.byOwner(key).Plan(effects)
}

// HandleCompletion applies the completion of an operation of the source that owns it.
func (s *Sources) HandleCompletion(owner timer.Key, ev world.Event, effects *op.Effects) {
	s.byOwner(owner).HandleCompletion(ev, effects)
	s.rejectDuplicates(effects)
}

// rejectDuplicates marks the files whose pod has the UID of a pod with precedence. Two files may
// have pods of the same full name, which run one after the other; but a pod of the URL with the
// full name of another pod is rejected, since it must not wait for another source, nor for another
// pod of the same manifest.
func (s *Sources) rejectDuplicates(effects *op.Effects) {
	uids, names := map[string]string{}, map[string]string{}
	for _, source := range s.ordered() {
		for _, name := range source.Order {
			file := source.Files[name]
			if file.Pod == nil {
				file.DuplicateOf = ""
				continue
			}
			uid, full := string(file.Pod.UID), file.Pod.Namespace+"/"+file.Pod.Name
			what, first := "uid "+uid, uids[uid]
			if first == "" && source.Origin == OriginHTTP {
				what, first = "name "+full, names[full]
			}
			if first == "" {
				uids[uid] = name
				names[full] = cmp.Or(names[full], name)
			} else if file.DuplicateOf != first {
				effects.Log(world.LevelError, "duplicate manifest skipped", "file", name,
					"err", what+" is that of the pod in "+first)
			}
			file.DuplicateOf = first
		}
	}
}

// Pods returns the desired static pods: source by source, the directory's by file name, the URL's
// in the order of the manifest.
func (s *Sources) Pods() []*v1.Pod {
	var pods []*v1.Pod
	for _, source := range s.ordered() {
		for _, name := range source.Order {
			if file := source.Files[name]; file.Pod != nil && file.DuplicateOf == "" {
				pods = append(pods, file.Pod)
			}
		}
	}
	return pods
}

// Count returns the number of manifests, and how many of them are invalid or rejected.
func (s *Sources) Count() (all, broken int) {
	for _, source := range s.ordered() {
		all += len(source.Files)
		for _, file := range source.Files { //ordered: counts
			if file.DecodeError != "" || file.DuplicateOf != "" {
				broken++
			}
		}
	}
	return all, broken
}
