package parity

import (
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/world"
)

// podCases are rules for pods.
var podCases = []apiCase{
	{"a new pod is Pending, has generation 1 and a QoS class", newPodDefaults},
	{"a status patch changes the status only and merges conditions by type", podStatusSubresource},
	{"a status patch replaces the list of container statuses", containerStatusesAreReplaced},
	{"a status patch with the UID of an earlier pod is a conflict", statusUIDPrecondition},
	{"a status patch with an old resource version is a conflict", statusVersionPrecondition},
	{"observedGeneration and qosClass cannot be cleared", statusFieldsAreKept},
	{"a terminated container that may not restart stays terminated", terminatedStaysTerminated},
	{"a terminated container that may restart can be running again", restartableContainer},
	{"any phase may follow any other phase", anyPhaseTransition},
	{"a pod has at most one IP of each family", podIPFamilies},
	{"a node cannot change labels through a status or pods of other nodes", otherNodesPods},
	{"a change of an image increments the generation, most other changes are invalid", imageUpdate},
	{"deleting a pod marks it and increments the generation", deleteMarksPod},
	{"a second deletion can only shorten the grace period", shortenGracePeriod},
	{"a pod in a terminal phase and an unscheduled pod are removed at once", immediateDeletion},
	{"a pod is removed at once with a grace period of zero", forceDeletion},
	{"a pod with finalizers is only marked for deletion", podFinalizers},
	{"a node deletes a pod by its UID", deletionByNode},
	{"a node can create mirror pods of its own static pods only", mirrorPodRules},
	{"the mirror annotation cannot be changed", mirrorAnnotationIsFixed},
	{"a node can read the objects that its pods refer to", readReferencedObjects},
	{"a node can create tokens for its own pods only", tokenRules},
	{"a node can read the service accounts of its pods", readServiceAccounts},
}

// newPod returns the creation of a pod that is bound to the node.
func (c *cluster) newPod(changes ...func(*v1.Pod)) *world.CreateObject {
	p := &v1.Pod{ObjectMeta: c.meta()}
	p.Spec = v1.PodSpec{
		NodeName: c.w.Node(), AutomountServiceAccountToken: new(false),
		Containers: []v1.Container{{Name: "app", Image: "registry.test/app:1"}},
	}
	for _, change := range changes {
		change(p)
	}
	return &world.CreateObject{Object: world.Object{Pod: p}}
}

// newMirrorPod returns the creation of a mirror pod, as the node sends it.
func (c *cluster) newMirrorPod() world.CreateObject {
	node := c.asAdmin(&world.GetObject{Resource: world.ResourceNodes, Name: c.w.Node()}).Node
	m := c.newPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
			Name: node.Name, UID: node.UID, Controller: new(true)}}
	})
	return *m
}

// patchStatus returns a patch of the status of the case's pod.
func (c *cluster) patchStatus(patch string, args ...any) *world.PatchObject {
	p := c.patch(world.ResourcePods, patch, args...)
	p.Status = true
	return p
}

func (c *cluster) currentPod() *v1.Pod { return c.asAdmin(c.get(world.ResourcePods, c.name)).Pod }

func newPodDefaults(c *cluster) {
	p := c.asAdmin(c.newPod(func(p *v1.Pod) {
		p.Status = v1.PodStatus{Phase: v1.PodRunning, Message: "made up"}
	})).Pod
	c.check(p.Status.Phase == v1.PodPending && p.Status.Message == "" &&
		p.Status.QOSClass == v1.PodQOSBestEffort, "status %v", p.Status)
	c.check(p.Generation == 1, "generation %d", p.Generation)
	c.check(p.Spec.RestartPolicy == v1.RestartPolicyAlways && p.Spec.ServiceAccountName == "default" &&
		*p.Spec.TerminationGracePeriodSeconds == 30, "spec %v", p.Spec)
	c.check(p.Spec.Containers[0].ImagePullPolicy == v1.PullIfNotPresent, "%v", p.Spec.Containers)
}

func podStatusSubresource(c *cluster) {
	made := c.asAdmin(c.newPod()).Pod
	first := c.asNode(c.patchStatus(`{"spec":{"activeDeadlineSeconds":5},"metadata":{"uid":%q},`+
		`"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`,
		made.UID)).Pod
	c.check(first.Status.Phase == v1.PodRunning && first.Spec.ActiveDeadlineSeconds == nil &&
		first.Generation == 1 && first.ResourceVersion != made.ResourceVersion, "%v", first)
	second := c.asNode(c.patchStatus(
		`{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`)).Pod
	c.check(len(second.Status.Conditions) == 2 && second.Status.Phase == v1.PodRunning,
		"%v", second.Status)
	third := c.asNode(c.patchStatus(
		`{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`)).Pod
	c.check(len(third.Status.Conditions) == 1 && third.Status.Conditions[0].Type == "Initialized",
		"%v", third.Status)
	c.nodeMustFail(world.KindRefused, c.patch(world.ResourcePods, `{"metadata":{"labels":{"a":"b"}}}`))
	replaced := third.DeepCopy()
	replaced.Status.Phase, replaced.ResourceVersion = v1.PodFailed, ""
	left := c.asAdmin(&world.UpdateObject{Object: world.Object{Pod: replaced}}).Pod
	c.check(left.Status.Phase == v1.PodRunning, "the status was changed by an update of the object")
}

func containerStatusesAreReplaced(c *cluster) {
	c.asAdmin(c.newPod())
	c.asNode(c.patchStatus(`{"status":{"containerStatuses":[%s,%s]}}`,
		containerStatus("app", ""), containerStatus("log", "")))
	p := c.asNode(c.patchStatus(`{"status":{"containerStatuses":[%s]}}`,
		containerStatus("new", ""))).Pod
	c.check(len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Name == "new",
		"%v", p.Status.ContainerStatuses)
	p = c.asNode(c.patchStatus(`{"status":{"containerStatuses":null,"message":null}}`)).Pod
	c.check(len(p.Status.ContainerStatuses) == 0, "%v", p.Status.ContainerStatuses)
}

func statusUIDPrecondition(c *cluster) {
	old := c.asAdmin(c.newPod()).Pod
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(0))))
	c.asAdmin(c.newPod())
	c.nodeMustFail(world.KindConflict,
		c.patchStatus(`{"metadata":{"uid":%q},"status":{"phase":"Failed"}}`, old.UID))
	c.check(c.currentPod().Status.Phase == v1.PodPending, "the pod was changed")
}

func statusVersionPrecondition(c *cluster) {
	old := c.asAdmin(c.newPod()).Pod
	c.asNode(c.patchStatus(`{"status":{"message":"a"}}`))
	c.nodeMustFail(world.KindConflict, c.patchStatus(
		`{"metadata":{"resourceVersion":%q},"status":{"message":"b"}}`, old.ResourceVersion))
}

func statusFieldsAreKept(c *cluster) {
	c.asAdmin(c.newPod())
	c.asNode(c.patchStatus(`{"status":{"observedGeneration":1,"conditions":[` +
		`{"type":"Ready","status":"True","observedGeneration":1}]}}`))
	p := c.asNode(c.patchStatus(`{"status":{"observedGeneration":null,"qosClass":null,"conditions":[` +
		`{"type":"Ready","status":"False","observedGeneration":0}]}}`)).Pod
	c.check(p.Status.ObservedGeneration == 1 && p.Status.QOSClass == v1.PodQOSBestEffort &&
		p.Status.Conditions[0].ObservedGeneration == 1, "%v", p.Status)
	c.nodeMustFail(world.KindInvalid, c.patchStatus(`{"status":{"qosClass":"Burstable"}}`))
}

// containerStatus returns a container status in JSON: running, or terminated if code is not empty.
func containerStatus(name, code string) string {
	state := `"running":{"startedAt":"2026-01-01T00:00:00Z"}`
	if code != "" {
		state = `"terminated":{"exitCode":` + code + `}`
	}
	return fmt.Sprintf(`{"name":%q,"image":"i","imageID":"i","ready":false,"restartCount":0,`+
		`"state":{%s}}`, name, state)
}

func terminatedStaysTerminated(c *cluster) {
	c.asAdmin(c.newPod(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
	set := func(status string) *world.PatchObject {
		return c.patchStatus(`{"status":{"containerStatuses":[%s]}}`, status)
	}
	c.asNode(set(containerStatus("app", "1")))
	c.nodeMustFail(world.KindInvalid, set(containerStatus("app", "")))
	c.asNode(set(containerStatus("app", "0")))
	c.asNode(c.patchStatus(`{"status":{"containerStatuses":null}}`))
	c.asNode(set(containerStatus("app", "")))
}

func restartableContainer(c *cluster) {
	c.asAdmin(c.newPod(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure }))
	set := func(status string) *world.PatchObject {
		return c.patchStatus(`{"status":{"containerStatuses":[%s]}}`, status)
	}
	c.asNode(set(containerStatus("app", "1")))
	c.asNode(set(containerStatus("app", "")))
	c.asNode(set(containerStatus("app", "0")))
	c.nodeMustFail(world.KindInvalid, set(containerStatus("app", "")))
}

func anyPhaseTransition(c *cluster) {
	c.asAdmin(c.newPod())
	for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodRunning, v1.PodSucceeded, v1.PodFailed,
		v1.PodPending} {
		p := c.asNode(c.patchStatus(`{"status":{"phase":%q}}`, phase)).Pod
		c.check(p.Status.Phase == phase, "%s instead of %s", p.Status.Phase, phase)
	}
}

func podIPFamilies(c *cluster) {
	c.asAdmin(c.newPod())
	ips := func(ip string, ips ...string) *world.PatchObject {
		list := []v1.PodIP{}
		for _, ip := range ips {
			list = append(list, v1.PodIP{IP: ip})
		}
		data, err := json.Marshal(v1.PodStatus{PodIP: ip, PodIPs: list})
		c.check(err == nil, "%v", err)
		return c.patchStatus(`{"status":%s}`, data)
	}
	p := c.asNode(ips("10.0.0.1", "10.0.0.1", "fd00::1")).Pod
	c.check(len(p.Status.PodIPs) == 2 && p.Status.PodIP == "10.0.0.1", "%v", p.Status)
	c.nodeMustFail(world.KindInvalid, ips("10.0.0.1", "10.0.0.1", "10.0.0.2"))
}

func otherNodesPods(c *cluster) {
	c.asAdmin(c.newPod())
	c.nodeMustFail(world.KindRefused, c.patchStatus(`{"metadata":{"labels":{"a":"b"}}}`))
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(0))))
	c.asAdmin(c.newPod(func(p *v1.Pod) { p.Spec.NodeName = "elsewhere" }))
	c.eventually("changes of another node's pod are refused", func() bool {
		_, err := c.w.Call(c.patchStatus(`{"status":{"phase":"Running"}}`))
		return err.Has(world.KindRefused)
	})
	c.nodeMustFail(world.KindRefused, c.deleteObject(world.ResourcePods, c.name, nil))
	c.nodeMustFail(world.KindRefused, c.get(world.ResourcePods, c.name))
}

func imageUpdate(c *cluster) {
	c.asAdmin(c.newPod())
	p := c.asAdmin(c.patch(world.ResourcePods,
		`{"spec":{"containers":[{"name":"app","image":"registry.test/app:2"}]}}`)).Pod
	c.check(p.Generation == 2 && p.Spec.Containers[0].Image == "registry.test/app:2", "%v", p)
	p = c.asAdmin(c.patch(world.ResourcePods, `{"metadata":{"labels":{"a":"b"}}}`)).Pod
	c.check(p.Generation == 2 && p.Labels["a"] == "b", "%v", p.ObjectMeta)
	c.adminMustFail(world.KindInvalid, c.patch(world.ResourcePods, `{"spec":{"hostNetwork":true}}`))
	c.adminMustFail(world.KindInvalid, c.patch(world.ResourcePods,
		`{"spec":{"containers":[{"name":"more","image":"registry.test/app:1"}]}}`))
	c.asAdmin(c.patch(world.ResourcePods, `{"spec":{"activeDeadlineSeconds":9}}`))
	c.adminMustFail(world.KindInvalid, c.patch(world.ResourcePods,
		`{"spec":{"activeDeadlineSeconds":10}}`))
}

func deleteMarksPod(c *cluster) {
	c.asAdmin(c.newPod())
	before := c.w.Now().Truncate(time.Second)
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, nil))
	p := c.currentPod()
	c.check(p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 30, "%v", p.ObjectMeta)
	ends := p.DeletionTimestamp.Time
	c.check(!ends.Before(before.Add(29*time.Second)) && !ends.After(c.w.Now().Add(31*time.Second)),
		"deleted at %v, the time is %v", ends, c.w.Now())
	c.check(p.Generation == 2, "generation %d", p.Generation)
	after := c.asNode(c.patchStatus(
		`{"metadata":{"deletionTimestamp":null},"status":{"phase":"Failed"}}`)).Pod
	c.check(after.DeletionTimestamp != nil && after.Status.Phase == v1.PodFailed, "%v", after)
}

func shortenGracePeriod(c *cluster) {
	c.asAdmin(c.newPod())
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(100))))
	first := c.currentPod()
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(200))))
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, nil))
	c.check(c.currentPod().ResourceVersion == first.ResourceVersion, "the pod was changed")
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(40))))
	second := c.currentPod()
	c.check(*second.DeletionGracePeriodSeconds == 40 && second.Generation == first.Generation &&
		first.DeletionTimestamp.Sub(second.DeletionTimestamp.Time) == time.Minute,
		"%v, then %v", first.ObjectMeta, second.ObjectMeta)
	c.w.Sleep(3 * time.Second)
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(2)))) // this deadline has passed
	third := c.currentPod()
	c.check(*third.DeletionGracePeriodSeconds == 1, "%v", third.ObjectMeta)
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(0))))
	c.adminMustFail(world.KindNotFound, c.get(world.ResourcePods, c.name))
}

func immediateDeletion(c *cluster) {
	c.asAdmin(c.newPod())
	c.asNode(c.patchStatus(`{"status":{"phase":"Succeeded"}}`))
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, nil))
	c.adminMustFail(world.KindNotFound, c.get(world.ResourcePods, c.name))
	c.asAdmin(c.newPod(func(p *v1.Pod) {
		p.Spec.NodeName = ""
		p.Spec.NodeSelector = map[string]string{"parity.test/nowhere": "yes"}
	}))
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, nil))
	c.adminMustFail(world.KindNotFound, c.get(world.ResourcePods, c.name))
}

func forceDeletion(c *cluster) {
	c.asAdmin(c.newPod())
	watch := c.watch(world.ResourcePods, c.w.Namespace(), c.name)
	c.eventually("the pod is listed", func() bool { return len(watch.events()) == 1 })
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(0))))
	c.eventually("the watch reports the removal", func() bool { return len(watch.events()) >= 3 })
	events := watch.events()
	changed, ok := events[1].(*world.ObjectChanged)
	c.check(ok && changed.Object.Pod.DeletionTimestamp != nil &&
		*changed.Object.Pod.DeletionGracePeriodSeconds == 0, "first %v", events[1])
	_, ok = events[2].(*world.ObjectGone)
	c.check(ok, "then %v", events[2])
}

func podFinalizers(c *cluster) {
	c.asAdmin(c.newPod(func(p *v1.Pod) { p.Finalizers = []string{"parity.test/keep"} }))
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, new(int64(0))))
	p := c.currentPod()
	c.check(p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 0, "%v", p.ObjectMeta)
	c.asNode(c.deleteObject(world.ResourcePods, c.name, new(int64(0))))
	c.asNode(c.patchStatus(`{"status":{"phase":"Failed"}}`))
	c.asAdmin(c.patch(world.ResourcePods, `{"metadata":{"finalizers":null}}`))
	c.adminMustFail(world.KindNotFound, c.get(world.ResourcePods, c.name))
}

func deletionByNode(c *cluster) {
	old := c.asAdmin(c.newPod()).Pod
	removal := c.deleteObject(world.ResourcePods, c.name, new(int64(0)))
	removal.UID = "00000000-0000-4000-8000-000000000000"
	c.eventually("another UID is a conflict", func() bool {
		_, err := c.w.Call(removal)
		return err.Has(world.KindConflict)
	})
	c.check(c.currentPod().UID == old.UID, "the pod was removed")
	removal.UID = string(old.UID)
	c.asNode(removal)
	c.nodeMustFail(world.KindNotFound, removal)
}

func mirrorPodRules(c *cluster) {
	plain, owned := c.newPod(), c.newMirrorPod()
	c.nodeMustFail(world.KindRefused, plain)
	for _, invalidate := range []func(*v1.Pod){
		func(p *v1.Pod) { p.Spec.NodeName = "elsewhere" },
		func(p *v1.Pod) { p.OwnerReferences = nil },
		func(p *v1.Pod) { p.OwnerReferences[0].Controller = nil },
		func(p *v1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = new(true) },
		func(p *v1.Pod) { p.OwnerReferences[0].UID = "00000000-0000-4000-8000-000000000000" },
		func(p *v1.Pod) { p.OwnerReferences[0].Name = "elsewhere" },
		func(p *v1.Pod) { p.Spec.ServiceAccountName = "default" },
		func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}} },
		func(p *v1.Pod) {
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "m"}}}}
		},
	} {
		invalid := world.Object{Pod: owned.Object.Pod.DeepCopy()}
		invalidate(invalid.Pod)
		c.nodeMustFail(world.KindRefused, &world.CreateObject{Object: invalid})
	}
	p := c.asNode(&owned).Pod
	c.check(p.UID != "" && p.Spec.ServiceAccountName == "" && p.Status.Phase == v1.PodPending,
		"%v", p)
}

func mirrorAnnotationIsFixed(c *cluster) {
	m := c.newMirrorPod()
	c.asNode(&m)
	for _, patch := range []string{
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"other"}}}`,
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":null}}}`,
	} {
		c.nodeMustFail(world.KindInvalid, c.patchStatus("%s", patch))
		c.adminMustFail(world.KindInvalid, c.patch(world.ResourcePods, "%s", patch))
	}
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name, nil))
	p := c.currentPod()
	c.check(p.DeletionTimestamp != nil, "the mirror pod was removed at once")
}

func readReferencedObjects(c *cluster) {
	c.asAdmin(c.newConfigMap("a"))
	c.nodeMustFail(world.KindRefused, c.get(world.ResourceConfigMaps, c.name))
	c.asAdmin(c.newPod(func(p *v1.Pod) {
		reference := v1.LocalObjectReference{Name: c.name}
		p.Spec.Volumes = []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: reference}}}}
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{
			SecretRef: &v1.SecretEnvSource{LocalObjectReference: reference}}}
	}))
	c.eventually("the node may read the object that its pod refers to", func() bool {
		_, err := c.w.Call(c.get(world.ResourceConfigMaps, c.name))
		return err == nil
	})
	c.nodeMustFail(world.KindNotFound, c.get(world.ResourceSecrets, c.name))
	c.nodeMustFail(world.KindRefused, c.newConfigMap("b"))
	c.nodeMustFail(world.KindRefused, c.patch(world.ResourceConfigMaps, `{"data":{"key":"b"}}`))
	c.nodeMustFail(world.KindRefused, c.deleteObject(world.ResourceConfigMaps, c.name, nil))
}

func readServiceAccounts(c *cluster) {
	account := c.asAdmin(&world.CreateObject{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.w.Namespace(), Name: c.name,
			Annotations: map[string]string{"role": "reader"}}}}}).ServiceAccount
	c.nodeMustFail(world.KindRefused, c.get(world.ResourceServiceAccounts, c.name))
	p := c.asAdmin(c.newPod(func(p *v1.Pod) {
		p.Spec.ServiceAccountName = c.name
		p.Spec.Volumes = []v1.Volume{{Name: "token", VolumeSource: v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
				ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t", Audience: "vault"}}}}}}}
	})).Pod
	var read *v1.ServiceAccount
	c.eventually("the node may read the service account of its pod", func() bool {
		result, _ := c.w.Call(c.get(world.ResourceServiceAccounts, c.name))
		if found, ok := result.(*world.ObjectRead); ok {
			read = found.Object.ServiceAccount
		}
		return read != nil
	})
	c.check(read.UID == account.UID && read.Annotations["role"] == "reader", "%v", read)
	watch := c.watch(world.ResourceServiceAccounts, c.w.Namespace(), c.name)
	watch.expect("failing Refused")
	c.w.Send(&world.UnwatchObjects{Watch: watch.id})
	c.nodeMustFail(world.KindRefused, c.deleteObject(world.ResourceServiceAccounts, c.name, nil))
	request := func(uid, audience string) *world.CreateToken {
		return &world.CreateToken{Namespace: c.w.Namespace(), ServiceAccount: c.name, UID: uid,
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience},
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1",
					Name: c.name, UID: p.UID}}}
	}
	result, err := c.w.Call(request(string(account.UID), "vault"))
	token, ok := result.(*world.TokenCreated)
	c.check(ok && token.Token != "" && token.ExpirationSeconds == 3600, "%+v, %v", result, err)
	c.nodeMustFail(world.KindConflict, request("00000000-0000-4000-8000-000000000000", "vault"))
	c.nodeMustFail(world.KindRefused, request(string(account.UID), "elsewhere"))
}

func tokenRules(c *cluster) {
	p := c.asAdmin(c.newPod(func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "token", VolumeSource: v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
				ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}}}}}}
	})).Pod
	request := func(seconds int64, uid string) *world.CreateToken {
		return &world.CreateToken{Namespace: c.w.Namespace(), ServiceAccount: "default",
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod",
					APIVersion: "v1", Name: c.name, UID: types.UID(uid)}}}
	}
	var token *world.TokenCreated
	c.eventually("the node may create a token", func() bool {
		result, _ := c.w.Call(request(3600, string(p.UID)))
		token, _ = result.(*world.TokenCreated)
		return token != nil
	})
	c.check(token.Token != "" && token.ExpirationSeconds == 3600, "for %d s", token.ExpirationSeconds)
	c.nodeMustFail(world.KindInvalid, request(599, string(p.UID)))
	c.nodeMustFail(world.KindRefused, request(3600, "00000000-0000-4000-8000-000000000000"))
	c.nodeMustFail(world.KindRefused, request(3600, ""))
	unbound := request(3600, string(p.UID))
	unbound.Spec.BoundObjectRef = nil
	c.nodeMustFail(world.KindRefused, unbound)
	unknown := request(3600, string(p.UID))
	unknown.ServiceAccount = "unknown"
	c.nodeMustFail(world.KindRefused, unknown)
}
