package kubelet

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Projected volumes (pkg/volume/projected). A kubelet keeps the tokens of service accounts in
// memory alone (pkg/kubelet/token), so that each of its lives requests others; it requests one
// again after four fifths of its validity, which is longer than it runs here.

// tokenSteps returns what requests the tokens of a volume.
func (k *Kubelet) tokenSteps(p *pod, v *v1.Volume) []*step {
	var steps []*step
	for _, s := range sources(v) {
		if s.ServiceAccountToken == nil {
			continue
		}
		request := &world.CreateToken{Namespace: p.object.Namespace,
			ServiceAccount: p.object.Spec.ServiceAccountName,
			Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: s.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
					Name: p.object.Name, UID: p.object.UID}}}
		if s.ServiceAccountToken.Audience != "" {
			request.Spec.Audiences = []string{s.ServiceAccountToken.Audience}
		}
		steps = append(steps, &step{"token " + tokenName(v, s.ServiceAccountToken), world.PortAPI,
			request})
	}
	return steps
}

func tokenName(v *v1.Volume, s *v1.ServiceAccountTokenProjection) string {
	return v.Name + "/" + s.Path
}

func sources(v *v1.Volume) []v1.VolumeProjection {
	if v.Projected == nil {
		return nil
	}
	return v.Projected.Sources
}

// projected returns the files of a projected volume: tokens, keys of ConfigMaps, and the name of
// the pod.
func (k *Kubelet) projected(p *pod, v *v1.Volume) []world.DirFile {
	var files []world.DirFile
	add := func(name, text string) {
		files = append(files, world.DirFile{Path: name, Data: []byte(text), Mode: 0o644})
	}
	for _, s := range sources(v) {
		switch {
		case s.ServiceAccountToken != nil:
			add(s.ServiceAccountToken.Path, p.tokens[tokenName(v, s.ServiceAccountToken)])
		case s.ConfigMap != nil:
			o := k.opts.Server.Object(world.ResourceConfigMaps, p.object.Namespace, s.ConfigMap.Name)
			for _, item := range s.ConfigMap.Items {
				add(item.Path, o.ConfigMap.Data[item.Key])
			}
		case s.DownwardAPI != nil:
			for _, item := range s.DownwardAPI.Items {
				add(item.Path, p.object.Name)
			}
		}
	}
	return files
}
