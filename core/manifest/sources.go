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

// Who the operations of the sources belong to.
var (
	Owner    = timer.Key{Component: "manifests"}
	URLOwner = timer.Key{Component: "manifests", Name: string(OriginHTTP)}
)

// Sources are all places that static pods come from.
type Sources struct {
	File Source `json:"file"`
	HTTP Source `json:"http"`
}

// NewSources are the sources that a node is configured with. The path is of a directory or file.
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

// each is the sources in the order in which they count.
func (s *Sources) each() [2]*Source { return [2]*Source{&s.File, &s.HTTP} }

func (s *Sources) of(owner timer.Key) *Source {
	if owner == URLOwner {
		return &s.HTTP
	}
	return &s.File
}

// Ready says that each source has been read at least once. Before that the absence of a pod means
// nothing.
func (s *Sources) Ready() bool { return s.File.Ready && s.HTTP.Ready }

// Plan lets the source with the given key be read if it is time, and says when to be called again.
func (s *Sources) Plan(key timer.Key, out *op.Out) time.Time { return s.of(key).Plan(out) }

// Answered takes the content of the source that an operation belongs to.
func (s *Sources) Answered(owner timer.Key, ev world.Event, out *op.Out) {
	s.of(owner).Answered(ev, out)
	s.rejectTwins(out)
}

// rejectTwins skips what asks for a pod that another asks for as well: the first one has it, for
// as long as it is there. Two files may have pods of one full name, which then run one after the
// other; but what a URL says does not wait for another source, nor for itself.
func (s *Sources) rejectTwins(out *op.Out) {
	uids, names := map[string]string{}, map[string]string{}
	for _, source := range s.each() {
		for _, name := range source.Names {
			file := source.Files[name]
			if file.Pod == nil {
				file.Twin = ""
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
			} else if file.Twin != first {
				out.Log(world.LevelError, "manifest skipped", "file", name,
					"error", what+" is that of the pod in "+first)
			}
			file.Twin = first
		}
	}
}

// Pods are the pods that are wanted, source by source, in the order of their files' names, or in
// that of the page.
func (s *Sources) Pods() []*v1.Pod {
	var pods []*v1.Pod
	for _, source := range s.each() {
		for _, name := range source.Names {
			if file := source.Files[name]; file.Pod != nil && file.Twin == "" {
				pods = append(pods, file.Pod)
			}
		}
	}
	return pods
}

// Count is how many manifests have been read, and how many of them give no pod although there is
// something in them.
func (s *Sources) Count() (all, broken int) {
	for _, source := range s.each() {
		all += len(source.Files)
		for _, file := range source.Files { //ordered: counts
			if file.Broken != "" || file.Twin != "" {
				broken++
			}
		}
	}
	return all, broken
}
