package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
)

// Pool is what the pods of other scenarios are drawn from, so that what one scenario has is tried
// together with what others have: any of their groups of pods, from any source, under all troubles
// of this scenario.
type Pool struct {
	// From are the files of the scenarios, relative to this one. Their pods, objects and signers are
	// in the pool, their troubles are not.
	From   []string `json:"from"`
	Groups Count    `json:"groups"` // how many groups a seed has
	Each   Count    `json:"each"`   // how many pods a group has
	// Bound is the share of the groups of static pods whose pods are bound by the API server
	// instead; half of the others are at the manifest URL, if the node has one.
	Bound Share `json:"bound,omitempty"`

	groups []pooledGroup
}

// pooledGroup is a group of pods in the pool.
type pooledGroup struct {
	PodGroup
	scenario string
	objects  []Object // that pods of its scenario may need
	signers  []Signer // the same
}

// load reads the scenarios of the pool.
func (p *Pool) load(base string, dir fs.FS) error {
	if len(p.From) == 0 {
		return errors.New(".from: want the file of at least one scenario")
	}
	if p.Each.Least < 1 || p.Groups.Least < 1 {
		return errors.New(": want at least one group, and one pod of each")
	}
	known := map[string]Object{}
	for i, name := range p.From {
		file := path.Join(base, name)
		s, err := ReadScenario(dir, file)
		if err != nil {
			return fmt.Errorf(".from[%d]: %w", i, err)
		}
		for _, o := range s.Spec.Objects {
			other, exists := known[o.Name]
			if exists && !reflect.DeepEqual(o, other) {
				return fmt.Errorf(".from[%d]: the object %q is not that of an earlier scenario", i, o.Name)
			}
			known[o.Name] = o
		}
		for _, group := range s.Spec.Pods {
			p.groups = append(p.groups, pooledGroup{group, s.Metadata.Name, s.Spec.Objects,
				s.Spec.Signers})
		}
	}
	return nil
}

// drawPool draws the groups of a plan from the pool, with the objects and signers that they may
// need.
func (g *generator) drawPool() (groups []PodGroup, objects []Object) {
	pool := g.scenario.Spec.Pool
	if pool == nil {
		return nil, nil
	}
	r := g.stream("pool")
	order := r.Perm(len(pool.groups))
	for _, i := range order[:min(pool.Groups.draw(r), len(order))] {
		drawn := &pool.groups[i]
		group := drawn.PodGroup
		name := drawn.scenario + "-" + ManifestName(group.Manifest)
		group.Manifest, group.Count = renamedManifest(group.Manifest, name), pool.Each
		isBound, isAtURL := pool.Bound.drawBool(r), r.IntN(2) == 0
		if !group.API {
			group.API = isBound && g.scenario.Spec.Node.API
			group.URL = !group.API && isAtURL && g.scenario.Spec.Node.Config["staticPodURL"] != nil
		}
		groups = append(groups, group)
		for _, o := range drawn.objects {
			if !slices.ContainsFunc(objects, func(other Object) bool { return other.Name == o.Name }) {
				objects = append(objects, o)
			}
		}
		for _, s := range drawn.signers {
			if !slices.ContainsFunc(g.signers, func(other Signer) bool { return other.Name == s.Name }) {
				g.signers = append(g.signers, s)
			}
		}
	}
	return groups, objects
}
