package whatif

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"seedlet.dev/core/document"
	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/plan"
)

// podsMax is how many pods a node takes unless its configuration says otherwise.
const podsMax = 110

const (
	kindPod         = "Pod"
	kindDeployment  = "Deployment"
	kindReplicaSet  = "ReplicaSet"
	kindStatefulSet = "StatefulSet"
	kindDaemonSet   = "DaemonSet"
	kindJob         = "Job"
)

// workloadKinds are the kinds of which pods are made.
var workloadKinds = []string{kindPod, kindDeployment, kindReplicaSet, kindStatefulSet,
	kindDaemonSet, kindJob}

// Workload is a pod or the pods of a controller.
type Workload struct {
	Kind, Namespace, Name string
	Pods                  []Pod

	source *source
}

// Pod is one pod of a workload on the node.
type Pod struct {
	Name string

	spec     *v1.PodSpec // with defaults
	manifest map[string]any
}

// String returns "Deployment/web", with the namespace in front unless it is the default one.
func (w *Workload) String() string {
	name := w.Kind + "/" + w.Name
	if w.Namespace != metav1.NamespaceDefault {
		name = w.Namespace + "/" + name
	}
	return name
}

// countField is the field that says how many pods there are.
func (w *Workload) countField() string {
	switch w.Kind {
	case kindJob:
		return "spec.parallelism"
	case kindPod, kindDaemonSet:
		return "kind"
	}
	return "spec.replicas"
}

// template is what a controller makes pods of.
type template struct {
	version  string // that the kind has
	meta     metav1.ObjectMeta
	pod      v1.PodTemplateSpec
	prefix   string // of the fields of the pod
	selector *metav1.LabelSelector
	count    *int32
	claims   []v1.PersistentVolumeClaim
	service  string // of a StatefulSet
	indexed  bool   // of a Job
	bounded  *int32 // of a Job: completions
}

// decode decodes an object. Unknown fields are errors.
func (s *source) decode(into any) error {
	unknown, err := document.Decode(s.doc, into)
	switch {
	case err != nil:
		return s.errorf("%w", err)
	case len(unknown) > 0:
		return s.errorf("unknown field %s", strings.Join(unknown, ", "))
	}
	return nil
}

// template decodes the object of a workload.
func (s *source) template() (t template, err error) {
	t.version, t.prefix = "apps/v1", "spec.template."
	switch s.meta.Kind {
	case kindPod:
		var o v1.Pod
		err = s.decode(&o)
		t.version, t.meta, t.prefix = "v1", o.ObjectMeta, ""
		t.pod = v1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	case kindDeployment:
		var o appsv1.Deployment
		err = s.decode(&o)
		t.meta, t.pod, t.selector, t.count = o.ObjectMeta, o.Spec.Template, o.Spec.Selector,
			o.Spec.Replicas
	case kindReplicaSet:
		var o appsv1.ReplicaSet
		err = s.decode(&o)
		t.meta, t.pod, t.selector, t.count = o.ObjectMeta, o.Spec.Template, o.Spec.Selector,
			o.Spec.Replicas
	case kindStatefulSet:
		var o appsv1.StatefulSet
		err = s.decode(&o)
		t.meta, t.pod, t.selector, t.count = o.ObjectMeta, o.Spec.Template, o.Spec.Selector,
			o.Spec.Replicas
		t.claims, t.service = o.Spec.VolumeClaimTemplates, o.Spec.ServiceName
	case kindDaemonSet:
		var o appsv1.DaemonSet
		err = s.decode(&o)
		t.meta, t.pod, t.selector = o.ObjectMeta, o.Spec.Template, o.Spec.Selector
	case kindJob:
		var o batchv1.Job
		err = s.decode(&o)
		t.version, t.meta, t.pod = "batch/v1", o.ObjectMeta, o.Spec.Template
		t.count, t.bounded = o.Spec.Parallelism, o.Spec.Completions
		t.indexed = o.Spec.CompletionMode != nil &&
			*o.Spec.CompletionMode == batchv1.IndexedCompletion
	}
	return t, err
}

// workload makes the pods that the object of a file has on one node.
func (in *Input) workload(s *source) (*Workload, error) {
	t, err := s.template()
	if err != nil {
		return nil, err
	}
	if err := t.check(s); err != nil {
		return nil, err
	}
	w := &Workload{Kind: s.meta.Kind, Namespace: namespaceOf(t.meta.Namespace), Name: t.meta.Name,
		source: s}
	count := 1
	if t.count != nil {
		count = int(*t.count)
	}
	if t.bounded != nil {
		count = min(count, int(*t.bounded))
	}
	if count > podsMax {
		return nil, s.errorf("%s: want at most %d, the pods of one node, have %d", w.countField(),
			podsMax, count)
	}
	for n := range count {
		pod, claims, err := w.pod(&t, n)
		if err != nil {
			return nil, err
		}
		if claims && n == 0 {
			in.Notes = append(in.Notes, fmt.Sprintf("%s: its volumes by claim are simulated as "+
				"emptyDir volumes", w))
		}
		w.Pods = append(w.Pods, pod)
	}
	if count == 0 {
		in.Notes = append(in.Notes, fmt.Sprintf("%s: it has no pods", w))
	}
	return w, nil
}

// check checks what the controller demands. The pod is checked by Workload.pod.
func (t *template) check(s *source) error {
	restart := t.pod.Spec.RestartPolicy
	switch {
	case s.meta.APIVersion != t.version:
		return s.errorf("apiVersion: want %s, have %q", t.version, s.meta.APIVersion)
	case t.meta.Name == "":
		return s.errorf("metadata.name: want a name, have none")
	case len(validation.IsDNS1123Subdomain(t.meta.Name)) > 0:
		return s.errorf("metadata.name: %q: %s", t.meta.Name,
			validation.IsDNS1123Subdomain(t.meta.Name)[0])
	case t.count != nil && *t.count < 0:
		return s.errorf("%s: want 0 or more, have %d",
			(&Workload{Kind: s.meta.Kind}).countField(), *t.count)
	case s.meta.Kind == kindPod:
		return nil
	case s.meta.Kind == kindJob && restart != v1.RestartPolicyNever &&
		restart != v1.RestartPolicyOnFailure:
		return s.errorf("spec.template.spec.restartPolicy: want Never or OnFailure, have %q", restart)
	case s.meta.Kind == kindJob:
		return nil
	case restart != "" && restart != v1.RestartPolicyAlways:
		return s.errorf("spec.template.spec.restartPolicy: want Always, have %q", restart)
	case t.selector == nil:
		return s.errorf("spec.selector: want one, have none")
	}
	selector, err := metav1.LabelSelectorAsSelector(t.selector)
	switch {
	case err != nil:
		return s.errorf("spec.selector: %w", err)
	case selector.Empty() || !selector.Matches(labels.Set(t.pod.Labels)):
		return s.errorf("spec.selector: it does not match spec.template.metadata.labels")
	}
	return nil
}

// pod makes the n-th pod. It reports whether a volume by claim was replaced.
func (w *Workload) pod(t *template, n int) (Pod, bool, error) {
	o := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kindPod},
		Spec: *t.pod.Spec.DeepCopy()}
	o.Labels, o.Annotations = t.pod.DeepCopy().Labels, t.pod.DeepCopy().Annotations
	o.Name, o.Namespace = w.podName(t, n), w.Namespace
	o.Spec.NodeName = ""
	w.identify(o, t, n)
	claims := replaceClaims(&o.Spec, t.claims)
	p := Pod{Name: o.Name}
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, &p.manifest)
	}
	if err != nil {
		return p, false, w.source.errorf("%w", err)
	}
	delete(p.manifest, "status")
	if err := w.checkPod(o, t.prefix); err != nil {
		return p, false, err
	}
	p.spec = &o.Spec
	return p, claims, nil
}

// podName returns the name that the controller gives a pod. What a controller draws is a function
// of the workload's name here.
func (w *Workload) podName(t *template, n int) string {
	switch w.Kind {
	case kindPod:
		return w.Name
	case kindStatefulSet:
		return w.Name + "-" + strconv.Itoa(n)
	case kindDeployment:
		return w.Name + "-" + w.suffix(10, podsMax) + "-" + w.suffix(5, n)
	case kindJob:
		if t.indexed {
			return w.Name + "-" + strconv.Itoa(n) + "-" + w.suffix(5, n)
		}
	}
	return w.Name + "-" + w.suffix(5, n)
}

// suffixLetters are those that controllers append to names.
const suffixLetters = "bcdfghjklmnpqrstvwxz2456789"

// suffix returns the n-th of different texts of a length, as controllers append them to names.
func (w *Workload) suffix(length, n int) string {
	h := fnv.New64a()
	fmt.Fprint(h, w.String())
	const prime = 1_000_003 // no two small n have the same text
	value := h.Sum64()>>1 + uint64(n)*prime
	text := make([]byte, length)
	for i := range text {
		text[i] = suffixLetters[value%uint64(len(suffixLetters))]
		value /= uint64(len(suffixLetters))
	}
	return string(text)
}

// identify sets the labels and names by which a controller tells its pods apart.
func (w *Workload) identify(o *v1.Pod, t *template, n int) {
	label := func(name, value string) {
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[name] = value
	}
	switch w.Kind {
	case kindDeployment:
		label(appsv1.DefaultDeploymentUniqueLabelKey, w.suffix(10, podsMax))
	case kindStatefulSet:
		label(appsv1.StatefulSetPodNameLabel, o.Name)
		label(appsv1.PodIndexLabel, strconv.Itoa(n))
		o.Spec.Hostname, o.Spec.Subdomain = o.Name, t.service
	case kindJob:
		label(batchv1.JobNameLabel, w.Name)
		if t.indexed {
			label(batchv1.JobCompletionIndexAnnotation, strconv.Itoa(n))
		}
	}
}

// replaceClaims replaces volumes by claim with emptyDir volumes, and reports whether there are any.
func replaceClaims(spec *v1.PodSpec, templates []v1.PersistentVolumeClaim) bool {
	replaced := len(templates) > 0
	empty := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			v.VolumeSource, replaced = empty, true
		}
	}
	for _, claim := range templates {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: claim.Name, VolumeSource: empty})
	}
	return replaced
}

// checkPod sets the defaults of a pod, and checks it as the API server and the node do.
func (w *Workload) checkPod(o *v1.Pod, prefix string) error {
	entry := plan.Pod{Name: o.Name, API: true}
	if len(o.Spec.Containers) == 0 {
		return w.source.errorf("%sspec.containers: want at least one, have none", prefix)
	}
	manifest.SetDefaults(o)
	if problems := manifest.ValidateAPIPod(o); len(problems) > 0 {
		return w.source.errorf("%s%s: %s", prefix, problems[0].Field, problems[0].ErrorBody())
	}
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, &entry.Manifest)
	}
	if err != nil {
		return w.source.errorf("%w", err)
	}
	probe := plan.Plan{Metadata: plan.Metadata{Name: "check"}, Spec: plan.Spec{
		Order: plan.OrderUniform, Duration: plan.Duration(settleMax),
		Settle: plan.Duration(settleMax), Node: plan.Node{API: true}, Pods: []plan.Pod{entry}}}
	if err := probe.Validate(); err != nil {
		text := strings.TrimPrefix(err.Error(), "spec.pods[0].manifest: ")
		return w.source.errorf("%s", text)
	}
	return nil
}
