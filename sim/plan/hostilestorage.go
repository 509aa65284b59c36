package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// HostileStorage is how a pod harms others by the volumes that it asks for. Its only container
// mounts all of them.
type HostileStorage struct {
	Claims    int      `json:"claims,omitempty"`    // claims that do not exist
	Ephemeral int      `json:"ephemeral,omitempty"` // claims of its own, of the Classes in turn
	Classes   []string `json:"classes,omitempty"`
	Inline    int      `json:"inline,omitempty"` // inline volumes, of the Drivers in turn
	Drivers   []string `json:"drivers,omitempty"`
	// Attributes are the KiB of the attributes of all inline volumes together. Secrets is how many of
	// them name a Secret: every second one the Secret Object, the others Secrets that do not exist.
	Attributes int    `json:"attributes,omitempty"`
	Secrets    int    `json:"secrets,omitempty"`
	Object     string `json:"object,omitempty"`
	// Certificates are sources of certificates of Signer, in one volume.
	Certificates int    `json:"certificates,omitempty"`
	Signer       string `json:"signer,omitempty"`
}

// HostileStorageRange is what storage hostile pods ask for. Each of the amounts is zero in half of
// the pods.
type HostileStorageRange struct {
	Claims       Count    `json:"claims,omitempty"`
	Ephemeral    Count    `json:"ephemeral,omitempty"`
	Classes      []string `json:"classes,omitempty"`
	Inline       Count    `json:"inline,omitempty"`
	Drivers      []string `json:"drivers,omitempty"`
	Attributes   Count    `json:"attributes,omitempty"`
	Secrets      Count    `json:"secrets,omitempty"`
	Object       string   `json:"object,omitempty"`
	Certificates Count    `json:"certificates,omitempty"`
	Signer       string   `json:"signer,omitempty"`
}

// storage generates what storage a hostile pod asks for; nil if its group asks for none.
func (h *HostileStorageRange) storage(amount func(Count) int, r *rand.Rand) *HostileStorage {
	if h == nil {
		return nil
	}
	s := &HostileStorage{Claims: amount(h.Claims), Ephemeral: amount(h.Ephemeral),
		Inline: amount(h.Inline), Attributes: amount(h.Attributes), Secrets: amount(h.Secrets),
		Object: h.Object, Certificates: amount(h.Certificates), Signer: h.Signer}
	s.Classes, s.Drivers = rotated(h.Classes, r), rotated(h.Drivers, r)
	return s
}

// rotated returns a list that begins with a drawn element of another one.
func rotated(list []string, r *rand.Rand) []string {
	if len(list) == 0 {
		return nil
	}
	n := r.IntN(len(list))
	return append(append([]string(nil), list[n:]...), list[:n]...)
}

// inTurn returns the n-th element of a list that begins again after its end; empty if it has none.
func inTurn(list []string, n int) string {
	if len(list) == 0 {
		return ""
	}
	return list[n%len(list)]
}

// volumes returns how many volumes a hostile pod has besides those of its manifest; nil has none.
func (s *HostileStorage) volumes() int {
	if s == nil {
		return 0
	}
	return s.Claims + s.Ephemeral + s.Inline + min(s.Certificates, 1)
}

// Volumes returns how many volumes of storage a hostile pod asks for.
func (h *Hostile) Volumes() int { return h.Storage.volumes() }

// addTo adds the volumes to a pod.
func (s *HostileStorage) addTo(pod *v1.Pod) {
	if s == nil {
		return
	}
	for n := range s.Claims {
		addVolume(pod, fmt.Sprint("claim-", n), v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("none-", n)}})
	}
	for n := range s.Ephemeral {
		class := inTurn(s.Classes, n)
		spec := v1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}
		spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		addVolume(pod, fmt.Sprint("own-", n), v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: spec}}})
	}
	for n := range s.Inline {
		addVolume(pod, fmt.Sprint("inline-", n), v1.VolumeSource{CSI: s.inline(n)})
	}
	var sources []v1.VolumeProjection
	for n := range s.Certificates {
		sources = append(sources, v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
			SignerName: s.Signer, KeyType: "ECDSAP256", CredentialBundlePath: fmt.Sprint("bundle-", n)}})
	}
	if len(sources) > 0 {
		addVolume(pod, "certificates", v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o644))}})
	}
}

// inline returns the n-th inline volume.
func (s *HostileStorage) inline(n int) *v1.CSIVolumeSource {
	source := &v1.CSIVolumeSource{Driver: inTurn(s.Drivers, n)}
	if bytes := s.Attributes << 10 / s.Inline; bytes > 0 {
		source.VolumeAttributes = map[string]string{"long": strings.Repeat("a", bytes)}
	}
	if n < s.Secrets {
		name := s.Object
		if n%2 == 1 {
			name = fmt.Sprint("none-", n)
		}
		source.NodePublishSecretRef = &v1.LocalObjectReference{Name: name}
	}
	return source
}

func (s *HostileStorage) validate() error {
	if s == nil {
		return nil
	}
	amounts := []int{s.Claims, s.Ephemeral, s.Inline, s.Attributes, s.Secrets, s.Certificates}
	for _, amount := range amounts {
		if amount < 0 || amount > longMax {
			return fmt.Errorf("hostile.storage: want 0 to %d of anything, have %d", longMax, amount)
		}
	}
	switch {
	case s.Ephemeral > 0 && len(s.Classes) == 0:
		return errors.New("hostile.storage.classes: want the class of claims, have none")
	case s.Inline > 0 && len(s.Drivers) == 0:
		return errors.New("hostile.storage.drivers: want the driver of inline volumes, have none")
	case s.Secrets > 0 && s.Object == "":
		return errors.New("hostile.storage.object: want the name of a Secret, have none")
	case s.Certificates > 0 && s.Signer == "":
		return errors.New("hostile.storage.signer: want the signer of certificates, have none")
	}
	return nil
}
