package plan

import v1 "k8s.io/api/core/v1"

// Where the volumes are that the simulated cluster provisions for claims, by the class of the
// claim. A class with the name of a CSI driver has volumes of that driver.
const (
	LocalVolumesDir = "/mnt/disks"   // of class local
	HostVolumesDir  = "/srv/volumes" // of class host-path
	NFSServer       = "nfs.test"     // of class nfs; each claim has an export of its name
)

// HasClaims reports whether a plan has claims, or pods that are given claims of their own.
func (s *Spec) HasClaims() bool {
	if !s.Node.API {
		return false
	}
	for i := range s.Objects {
		if kind, _ := s.Objects[i].Manifest["kind"].(string); kind == kindClaim {
			return true
		}
	}
	for i := range s.Pods {
		pod, err := s.Pods[i].BoundPod()
		if s.Pods[i].API && err == nil && hasEphemeralClaim(pod) {
			return true
		}
	}
	return false
}

func hasEphemeralClaim(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral != nil {
			return true
		}
	}
	return false
}
