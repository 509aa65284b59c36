package plan

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/document"
	"seedlet.dev/world"
)

// Object is an object of the API server other than a pod: one of objectKinds.
type Object struct {
	Name     string         `json:"name"` // by which acts refer to it
	Manifest map[string]any `json:"object"`
	Keys     int            `json:"keys,omitempty"` // added to the data of a ConfigMap or Secret
	// Registries is for how many registries a Secret has credentials.
	Registries int `json:"registries,omitempty"`
}

const (
	kindClusterTrustBundle = "ClusterTrustBundle"
	kindRuntimeClass       = "RuntimeClass"
	kindClaim              = "PersistentVolumeClaim"
	kindVolume             = "PersistentVolume"
	kindCSIDriver          = "CSIDriver"
	kindServiceAccount     = "ServiceAccount"
)

// clusterKinds are the kinds of objects that are in no namespace.
var clusterKinds = []string{kindRuntimeClass, kindClusterTrustBundle, kindVolume, kindCSIDriver}

// objectKinds maps the kinds of objects that a plan can have to their fields in world.Object.
var objectKinds = map[string]string{
	"ConfigMap": "configMap", "Secret": "secret", "Service": "service",
	kindRuntimeClass: "runtimeClass", kindClusterTrustBundle: "trustBundle",
	kindClaim: "claim", kindVolume: "volume", kindCSIDriver: "csiDriver",
	kindServiceAccount: "serviceAccount",
}

// ObjectNamed returns an entry of objects; nil if there is none of this name.
func (s *Spec) ObjectNamed(name string) *Object {
	i := slices.IndexFunc(s.Objects, func(o Object) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Objects[i]
}

// Decode returns the object of a manifest, in its namespace. Unknown fields are errors.
func (o *Object) Decode() (world.Object, error) {
	var object world.Object
	kind, _ := o.Manifest["kind"].(string)
	field := objectKinds[kind]
	if field == "" {
		return object, fmt.Errorf("kind: want one of %s, have %q",
			strings.Join(slices.Sorted(maps.Keys(objectKinds)), ", "), kind)
	}
	data, err := json.Marshal(map[string]any{field: o.Manifest})
	if err == nil {
		var unknown []string
		unknown, err = document.Decode(data, &object)
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("unknown field %s", strings.Join(unknown, ", "))
		}
	}
	if err != nil {
		return object, err
	}
	o.addKeys(&object)
	if s := object.Secret; s != nil && s.Type == v1.SecretTypeDockerConfigJson && s.Data == nil {
		s.Data = map[string][]byte{v1.DockerConfigJsonKey: dockerConfig(o.Registries)}
	}
	_, meta := object.Meta()
	if !slices.Contains(clusterKinds, kind) && meta.GetNamespace() == "" {
		meta.SetNamespace(metav1.NamespaceDefault)
	}
	return object, nil
}

// addKeys adds the keys to the data of an object.
func (o *Object) addKeys(object *world.Object) {
	if c := object.ConfigMap; c != nil && o.Keys > 0 && c.Data == nil {
		c.Data = map[string]string{}
	}
	if s := object.Secret; s != nil && o.Keys > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for n := range o.Keys {
		if c := object.ConfigMap; c != nil {
			c.Data[fmt.Sprint("k", n)] = "1"
		}
		if s := object.Secret; s != nil {
			s.Data[fmt.Sprint("k", n)] = []byte("1")
		}
	}
}

// trustAnchorsPatch returns a patch that gives a ClusterTrustBundle other anchors: one of its own
// and some that other bundles may have too, in any order, with comments between them.
func trustAnchorsPatch(n int, r *rand.Rand) map[string]any {
	names := []string{fmt.Sprintf("anchor %d", n)}
	for shared := range r.IntN(3) {
		names = append(names, fmt.Sprintf("shared %d", shared))
	}
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	var b strings.Builder
	for _, name := range names {
		b.WriteString("# " + name + "\n")
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
	}
	return map[string]any{"spec": map[string]any{"trustBundle": b.String()}}
}
