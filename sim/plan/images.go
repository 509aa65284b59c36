package plan

import "slices"

// Image is an image that has to be pulled before a container can use it.
type Image struct {
	Ref       string   `json:"ref"`
	PullTakes Duration `json:"pullTakes"`
	Failures  int      `json:"failures,omitempty"` // pulls that fail before the first success
	Stuck     bool     `json:"stuck,omitempty"`    // the first pull never ends
}

// ImageRange is how pulls of images may go. Absent is the share of images that have to be pulled.
// Pulls fail a number of times before the first success.
type ImageRange struct {
	Absent    Share `json:"absent,omitempty"`
	PullTakes Span  `json:"pullTakes,omitempty"`
	Failures  Count `json:"failures,omitempty"`
	Stuck     Share `json:"stuck,omitempty"` // of the images that have to be pulled; see Image
	// Present are images that never have to be pulled.
	Present []string `json:"present,omitempty"`
	// Users are the users in the image configurations, by image reference; see Spec.ImageUsers.
	Users map[string]string `json:"users,omitempty"`
	// Private are the users that may pull an image, by its reference; see Spec.PrivateImages.
	Private map[string][]string `json:"private,omitempty"`
}

func (g *generator) addImages() {
	r := g.stream("images")
	spec := &g.scenario.Spec.Images
	g.plan.Spec.ImageUsers, g.plan.Spec.PrivateImages = spec.Users, spec.Private
	weight := g.swarmWeight("images", false)
	var refs []string
	for i := range g.plan.Spec.Pods {
		refs = append(refs, imageRefs(g.plan.Spec.Pods[i].Manifest)...)
	}
	slices.Sort(refs)
	for _, ref := range slices.Compact(refs) {
		absent, takes, failures := spec.Absent.drawBool(r), spec.PullTakes.draw(r), 0
		if spec.Failures.Most > 0 {
			failures = spec.Failures.draw(r)
		}
		stuck := spec.Stuck.Most > 0 && spec.Stuck.drawBool(r)
		if absent && weight > 0 && !slices.Contains(spec.Present, ref) {
			g.plan.Spec.Images = append(g.plan.Spec.Images, Image{
				Ref: ref, PullTakes: Duration(takes), Failures: failures, Stuck: stuck,
			})
		}
	}
}
