package oracle

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// pluginPlaces is what the cluster knows of the drivers of the node.
type pluginPlaces struct {
	node *v1.Node
	// isRemade is set if the Node was deleted once.
	isRemade bool
	csiNode  *storagev1.CSINode
	values   map[string]map[string]bool // all that topologies have had, by key
}

// isMisplaced reports whether the API server never accepts what a driver answers of its node:
// NodeRestriction refuses its labels, or it is invalid.
func isMisplaced(p *truth.Plugin) bool {
	for key := range p.Topology { //ordered: whether there is one
		domain, _, hasDomain := strings.Cut(key, "/")
		isOfKubernetes := hasDomain && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"},
			func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) })
		if isOfKubernetes && !kubeletapis.IsKubeletLabel(key) ||
			len(validation.IsQualifiedName(key)) > 0 {
			return true
		}
	}
	return len(p.NodeID) > 256
}

// applyPlaces updates what the cluster knows, and which plugins it has known once.
func (p *pluginModel) applyPlaces(f *truth.Fact) {
	switch {
	case f.Kind == truth.PluginStarted:
		if p.places.values == nil {
			p.places.values = map[string]map[string]bool{}
		}
		for key, value := range f.Plugin.Topology { //ordered: a map
			if p.places.values[key] == nil {
				p.places.values[key] = map[string]bool{}
			}
			p.places.values[key][value] = true
		}
	case f.Kind != truth.ObjectCreated && f.Kind != truth.ObjectUpdated &&
		f.Kind != truth.ObjectDeleted:
		return
	case f.Write.Resource == world.ResourceNodes:
		p.places.node = f.Write.After.Node
		p.places.isRemade = p.places.isRemade || f.Write.After.Node == nil
	case f.Write.Resource == world.ResourceCSINodes:
		p.places.csiNode = f.Write.After.CSINode
	default:
		return
	}
	for _, s := range p.sockets { //ordered: each for itself
		s.isPlaced = s.isPlaced || p.places.has(s.is)
	}
}

// has reports whether the Node and the CSINode have what a driver answers of its node.
func (p *pluginPlaces) has(is *truth.Plugin) bool {
	if p.node == nil || p.csiNode == nil {
		return false
	}
	for key, value := range is.Topology { //ordered: whether one differs
		if have, exists := p.node.Labels[key]; !exists || have != value {
			return false
		}
	}
	ids := map[string]string{}
	err := json.Unmarshal([]byte(p.node.Annotations["csi.volume.kubernetes.io/nodeid"]), &ids)
	id := is.NodeID
	if id == "" {
		id = p.node.Name
	}
	return err == nil && ids[is.Name] == id &&
		slices.ContainsFunc(p.csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
			return d.Name == is.Name && d.NodeID == id && len(d.TopologyKeys) == len(is.Topology) &&
				!slices.ContainsFunc(d.TopologyKeys, func(key string) bool {
					_, has := is.Topology[key]
					return !has
				})
		})
}

// limitOf returns how many volumes of a driver the node can have by its CSINode; zero: any number.
func (p *pluginPlaces) limitOf(driver string) int64 {
	if p.csiNode == nil {
		return 0
	}
	for _, d := range p.csiNode.Spec.Drivers {
		if d.Name == driver && d.Allocatable != nil && d.Allocatable.Count != nil {
			return int64(*d.Allocatable.Count)
		}
	}
	return 0
}

// mayCollide reports whether the topology of a driver may contradict a label of the Node, which
// another driver has set or is about to set.
func (p *pluginModel) mayCollide(s *pluginSocket) bool {
	for key, value := range s.is.Topology { //ordered: whether there is one
		if len(p.places.values[key]) > 1 &&
			(p.places.node == nil || p.places.node.Labels[key] != value) {
			return true
		}
	}
	return false
}

// findUnplacedRegistration returns that a plugin is registered whose driver the cluster does not
// know, or must not.
func (m *model) findUnplacedRegistration(f *truth.Fact, s *pluginSocket) *finding {
	switch {
	case !m.opts.HasAPIServer:
	case s.isMisplaced:
		return findingf("the plugin at %s is registered, and the API server refuses %.70q and %v",
			f.Path, s.is.NodeID, s.is.Topology)
	case m.lacksNode(), m.plugins.places.isRemade && m.objects.nodeCreatedAt.After(s.startedAt):
		// the agent may still take a deleted Node, which had it all, for that of now
	case !s.isPlaced:
		return findingf("the plugin at %s is registered, and the Node and the CSINode have not been "+
			"given %.70q and %v", f.Path, s.is.NodeID, s.is.Topology)
	}
	return nil
}
