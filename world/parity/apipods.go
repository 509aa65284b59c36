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

// podCases are about pods.
var podCases = []apiCase{
	{"a new pod is pending, of generation 1, and has a class", newPod},
	{"a status is changed by itself, and conditions one by one", podStatus},
	{"what is taken out of a list goes", listsOfStatus},
	{"a status for another pod of the name is a conflict", statusOfAnother},
	{"an old version is a conflict in a status, too", statusVersion},
	{"what must not be lost of a status is kept", keptStatus},
	{"a container that has ended for good does not come back", endedForGood},
	{"one that restarts comes back", comesBack},
	{"any phase may follow any other", phases},
	{"addresses are of one family each", addressFamilies},
	{"a node changes no labels by a status, and no pod of others", othersPods},
	{"a pod's images may change, which is a generation", images},
	{"removing a pod marks it, and counts as a change", marksPod},
	{"a second removal only makes the time shorter", shorterGrace},
	{"a pod that has ended, or is nowhere, is removed at once", removedAtOnce},
	{"without grace a pod is removed at once", forced},
	{"finalizers keep a pod", podFinalizers},
	{"the node removes a pod by its uid", removedByNode},
	{"a node makes mirrors of its own pods only", mirrors},
	{"a mirror stays one", mirrorStays},
	{"a node reads what its pods refer to", referredTo},
	{"tokens are for pods of the node", tokens},
}

// pod is a pod of the case on the node.
func (c *cluster) pod(changes ...func(*v1.Pod)) *world.CreateObject {
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

// mirror is a pod of the case as the node makes them.
func (c *cluster) mirror() world.CreateObject {
	node := c.admin(&world.GetObject{Resource: world.ResourceNodes, Name: c.w.Node()}).Node
	m := c.pod(func(p *v1.Pod) {
		p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
			Name: node.Name, UID: node.UID, Controller: new(true)}}
	})
	return *m
}

// status is a patch of the status of the case's pod.
func (c *cluster) status(patch string, args ...any) *world.PatchObject {
	p := c.change(world.ResourcePods, patch, args...)
	p.Status = true
	return p
}

func (c *cluster) current() *v1.Pod { return c.admin(c.get(world.ResourcePods, c.name)).Pod }

func newPod(c *cluster) {
	p := c.admin(c.pod(func(p *v1.Pod) {
		p.Status = v1.PodStatus{Phase: v1.PodRunning, Message: "made up"}
	})).Pod
	c.check(p.Status.Phase == v1.PodPending && p.Status.Message == "" &&
		p.Status.QOSClass == v1.PodQOSBestEffort, "status %v", p.Status)
	c.check(p.Generation == 1, "generation %d", p.Generation)
	c.check(p.Spec.RestartPolicy == v1.RestartPolicyAlways && p.Spec.ServiceAccountName == "default" &&
		*p.Spec.TerminationGracePeriodSeconds == 30, "spec %v", p.Spec)
	c.check(p.Spec.Containers[0].ImagePullPolicy == v1.PullIfNotPresent, "%v", p.Spec.Containers)
}

func podStatus(c *cluster) {
	made := c.admin(c.pod()).Pod
	first := c.node(c.status(`{"spec":{"activeDeadlineSeconds":5},"metadata":{"uid":%q},"status":{`+
		`"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`, made.UID)).Pod
	c.check(first.Status.Phase == v1.PodRunning && first.Spec.ActiveDeadlineSeconds == nil &&
		first.Generation == 1 && first.ResourceVersion != made.ResourceVersion, "%v", first)
	second := c.node(c.status(
		`{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`)).Pod
	c.check(len(second.Status.Conditions) == 2 && second.Status.Phase == v1.PodRunning,
		"%v", second.Status)
	third := c.node(c.status(`{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`)).Pod
	c.check(len(third.Status.Conditions) == 1 && third.Status.Conditions[0].Type == "Initialized",
		"%v", third.Status)
	c.nodeFails(world.KindRefused, c.change(world.ResourcePods, `{"metadata":{"labels":{"a":"b"}}}`))
	replaced := third.DeepCopy()
	replaced.Status.Phase, replaced.ResourceVersion = v1.PodFailed, ""
	left := c.admin(&world.UpdateObject{Object: world.Object{Pod: replaced}}).Pod
	c.check(left.Status.Phase == v1.PodRunning, "the status was changed with the rest")
}

func listsOfStatus(c *cluster) {
	c.admin(c.pod())
	c.node(c.status(`{"status":{"containerStatuses":[%s,%s]}}`, ran("app", ""), ran("log", "")))
	p := c.node(c.status(`{"status":{"containerStatuses":[%s]}}`, ran("new", ""))).Pod
	c.check(len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Name == "new",
		"%v", p.Status.ContainerStatuses)
	p = c.node(c.status(`{"status":{"containerStatuses":null,"message":null}}`)).Pod
	c.check(len(p.Status.ContainerStatuses) == 0, "%v", p.Status.ContainerStatuses)
}

func statusOfAnother(c *cluster) {
	old := c.admin(c.pod()).Pod
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(0))))
	c.admin(c.pod())
	c.nodeFails(world.KindConflict, c.status(`{"metadata":{"uid":%q},"status":{"phase":"Failed"}}`,
		old.UID))
	c.check(c.current().Status.Phase == v1.PodPending, "it was changed")
}

func statusVersion(c *cluster) {
	old := c.admin(c.pod()).Pod
	c.node(c.status(`{"status":{"message":"a"}}`))
	c.nodeFails(world.KindConflict, c.status(
		`{"metadata":{"resourceVersion":%q},"status":{"message":"b"}}`, old.ResourceVersion))
}

func keptStatus(c *cluster) {
	c.admin(c.pod())
	c.node(c.status(`{"status":{"observedGeneration":1,"conditions":[` +
		`{"type":"Ready","status":"True","observedGeneration":1}]}}`))
	p := c.node(c.status(`{"status":{"observedGeneration":null,"qosClass":null,"conditions":[` +
		`{"type":"Ready","status":"False","observedGeneration":0}]}}`)).Pod
	c.check(p.Status.ObservedGeneration == 1 && p.Status.QOSClass == v1.PodQOSBestEffort &&
		p.Status.Conditions[0].ObservedGeneration == 1, "%v", p.Status)
	c.nodeFails(world.KindInvalid, c.status(`{"status":{"qosClass":"Burstable"}}`))
}

// ran is the status of a container: running, or ended with a code.
func ran(name, code string) string {
	state := `"running":{"startedAt":"2026-01-01T00:00:00Z"}`
	if code != "" {
		state = `"terminated":{"exitCode":` + code + `}`
	}
	return fmt.Sprintf(`{"name":%q,"image":"i","imageID":"i","ready":false,"restartCount":0,`+
		`"state":{%s}}`, name, state)
}

func endedForGood(c *cluster) {
	c.admin(c.pod(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
	set := func(status string) *world.PatchObject {
		return c.status(`{"status":{"containerStatuses":[%s]}}`, status)
	}
	c.node(set(ran("app", "1")))
	c.nodeFails(world.KindInvalid, set(ran("app", "")))
	c.node(set(ran("app", "0")))
	c.node(c.status(`{"status":{"containerStatuses":null}}`))
	c.node(set(ran("app", "")))
}

func comesBack(c *cluster) {
	c.admin(c.pod(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure }))
	set := func(status string) *world.PatchObject {
		return c.status(`{"status":{"containerStatuses":[%s]}}`, status)
	}
	c.node(set(ran("app", "1")))
	c.node(set(ran("app", "")))
	c.node(set(ran("app", "0")))
	c.nodeFails(world.KindInvalid, set(ran("app", "")))
}

func phases(c *cluster) {
	c.admin(c.pod())
	for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodRunning, v1.PodSucceeded, v1.PodFailed,
		v1.PodPending} {
		p := c.node(c.status(`{"status":{"phase":%q}}`, phase)).Pod
		c.check(p.Status.Phase == phase, "%s instead of %s", p.Status.Phase, phase)
	}
}

func addressFamilies(c *cluster) {
	c.admin(c.pod())
	ips := func(ip string, ips ...string) *world.PatchObject {
		list := []v1.PodIP{}
		for _, ip := range ips {
			list = append(list, v1.PodIP{IP: ip})
		}
		data, err := json.Marshal(v1.PodStatus{PodIP: ip, PodIPs: list})
		c.check(err == nil, "%v", err)
		return c.status(`{"status":%s}`, data)
	}
	p := c.node(ips("10.0.0.1", "10.0.0.1", "fd00::1")).Pod
	c.check(len(p.Status.PodIPs) == 2 && p.Status.PodIP == "10.0.0.1", "%v", p.Status)
	c.nodeFails(world.KindInvalid, ips("10.0.0.1", "10.0.0.1", "10.0.0.2"))
}

func othersPods(c *cluster) {
	c.admin(c.pod())
	c.nodeFails(world.KindRefused, c.status(`{"metadata":{"labels":{"a":"b"}}}`))
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(0))))
	c.admin(c.pod(func(p *v1.Pod) { p.Spec.NodeName = "elsewhere" }))
	c.soonIs("a pod of another node is not to be touched", func() bool {
		_, err := c.w.Call(c.status(`{"status":{"phase":"Running"}}`))
		return err.Has(world.KindRefused)
	})
	c.nodeFails(world.KindRefused, c.deletion(world.ResourcePods, c.name, nil))
	c.nodeFails(world.KindRefused, c.get(world.ResourcePods, c.name))
}

func images(c *cluster) {
	c.admin(c.pod())
	p := c.admin(c.change(world.ResourcePods,
		`{"spec":{"containers":[{"name":"app","image":"registry.test/app:2"}]}}`)).Pod
	c.check(p.Generation == 2 && p.Spec.Containers[0].Image == "registry.test/app:2", "%v", p)
	p = c.admin(c.change(world.ResourcePods, `{"metadata":{"labels":{"a":"b"}}}`)).Pod
	c.check(p.Generation == 2 && p.Labels["a"] == "b", "%v", p.ObjectMeta)
	c.adminFails(world.KindInvalid, c.change(world.ResourcePods, `{"spec":{"hostNetwork":true}}`))
	c.adminFails(world.KindInvalid, c.change(world.ResourcePods,
		`{"spec":{"containers":[{"name":"more","image":"registry.test/app:1"}]}}`))
	c.admin(c.change(world.ResourcePods, `{"spec":{"activeDeadlineSeconds":9}}`))
	c.adminFails(world.KindInvalid, c.change(world.ResourcePods,
		`{"spec":{"activeDeadlineSeconds":10}}`))
}

func marksPod(c *cluster) {
	c.admin(c.pod())
	before := c.w.Now().Truncate(time.Second)
	c.admin(c.deletion(world.ResourcePods, c.name, nil))
	p := c.current()
	c.check(p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 30, "%v", p.ObjectMeta)
	ends := p.DeletionTimestamp.Time
	c.check(!ends.Before(before.Add(29*time.Second)) && !ends.After(c.w.Now().Add(31*time.Second)),
		"ends at %v, it is %v", ends, c.w.Now())
	c.check(p.Generation == 2, "generation %d", p.Generation)
	after := c.node(c.status(
		`{"metadata":{"deletionTimestamp":null},"status":{"phase":"Failed"}}`)).Pod
	c.check(after.DeletionTimestamp != nil && after.Status.Phase == v1.PodFailed, "%v", after)
}

func shorterGrace(c *cluster) {
	c.admin(c.pod())
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(100))))
	first := c.current()
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(200))))
	c.admin(c.deletion(world.ResourcePods, c.name, nil))
	c.check(c.current().ResourceVersion == first.ResourceVersion, "it was changed")
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(40))))
	second := c.current()
	c.check(*second.DeletionGracePeriodSeconds == 40 && second.Generation == first.Generation &&
		first.DeletionTimestamp.Sub(second.DeletionTimestamp.Time) == time.Minute,
		"%v, then %v", first.ObjectMeta, second.ObjectMeta)
	c.w.Sleep(3 * time.Second)
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(2)))) // that was a second ago
	third := c.current()
	c.check(*third.DeletionGracePeriodSeconds == 1, "%v", third.ObjectMeta)
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(0))))
	c.adminFails(world.KindNotFound, c.get(world.ResourcePods, c.name))
}

func removedAtOnce(c *cluster) {
	c.admin(c.pod())
	c.node(c.status(`{"status":{"phase":"Succeeded"}}`))
	c.admin(c.deletion(world.ResourcePods, c.name, nil))
	c.adminFails(world.KindNotFound, c.get(world.ResourcePods, c.name))
	c.admin(c.pod(func(p *v1.Pod) {
		p.Spec.NodeName = ""
		p.Spec.NodeSelector = map[string]string{"parity.test/nowhere": "yes"}
	}))
	c.admin(c.deletion(world.ResourcePods, c.name, nil))
	c.adminFails(world.KindNotFound, c.get(world.ResourcePods, c.name))
}

func forced(c *cluster) {
	c.admin(c.pod())
	watch := c.watch(world.ResourcePods, c.w.Namespace(), c.name)
	c.soonIs("the pod is listed", func() bool { return len(watch.told()) == 1 })
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(0))))
	c.soonIs("the pod is told to be gone", func() bool { return len(watch.told()) >= 3 })
	told := watch.told()
	marked, is := told[1].(*world.ObjectChanged)
	c.check(is && marked.Object.Pod.DeletionTimestamp != nil &&
		*marked.Object.Pod.DeletionGracePeriodSeconds == 0, "first %v", told[1])
	_, is = told[2].(*world.ObjectGone)
	c.check(is, "then %v", told[2])
}

func podFinalizers(c *cluster) {
	c.admin(c.pod(func(p *v1.Pod) { p.Finalizers = []string{"parity.test/keep"} }))
	c.admin(c.deletion(world.ResourcePods, c.name, new(int64(0))))
	p := c.current()
	c.check(p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 0, "%v", p.ObjectMeta)
	c.node(c.deletion(world.ResourcePods, c.name, new(int64(0))))
	c.node(c.status(`{"status":{"phase":"Failed"}}`))
	c.admin(c.change(world.ResourcePods, `{"metadata":{"finalizers":null}}`))
	c.adminFails(world.KindNotFound, c.get(world.ResourcePods, c.name))
}

func removedByNode(c *cluster) {
	old := c.admin(c.pod()).Pod
	removal := c.deletion(world.ResourcePods, c.name, new(int64(0)))
	removal.UID = "00000000-0000-4000-8000-000000000000"
	c.soonIs("a wrong uid is a conflict", func() bool {
		_, err := c.w.Call(removal)
		return err.Has(world.KindConflict)
	})
	c.check(c.current().UID == old.UID, "it was removed")
	removal.UID = string(old.UID)
	c.node(removal)
	c.nodeFails(world.KindNotFound, removal)
}

func mirrors(c *cluster) {
	plain, owned := c.pod(), c.mirror()
	c.nodeFails(world.KindRefused, plain)
	for _, spoil := range []func(*v1.Pod){
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
		spoilt := world.Object{Pod: owned.Object.Pod.DeepCopy()}
		spoil(spoilt.Pod)
		c.nodeFails(world.KindRefused, &world.CreateObject{Object: spoilt})
	}
	p := c.node(&owned).Pod
	c.check(p.UID != "" && p.Spec.ServiceAccountName == "" && p.Status.Phase == v1.PodPending,
		"%v", p)
}

func mirrorStays(c *cluster) {
	m := c.mirror()
	c.node(&m)
	for _, patch := range []string{
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"other"}}}`,
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":null}}}`,
	} {
		c.nodeFails(world.KindInvalid, c.status("%s", patch))
		c.adminFails(world.KindInvalid, c.change(world.ResourcePods, "%s", patch))
	}
	c.admin(c.deletion(world.ResourcePods, c.name, nil))
	p := c.current()
	c.check(p.DeletionTimestamp != nil, "a mirror is removed at once")
}

func referredTo(c *cluster) {
	c.admin(c.config("a"))
	c.nodeFails(world.KindRefused, c.get(world.ResourceConfigMaps, c.name))
	c.admin(c.pod(func(p *v1.Pod) {
		at := v1.LocalObjectReference{Name: c.name}
		p.Spec.Volumes = []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: at}}}}
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{
			SecretRef: &v1.SecretEnvSource{LocalObjectReference: at}}}
	}))
	c.soonIs("the node may read what its pod refers to", func() bool {
		_, err := c.w.Call(c.get(world.ResourceConfigMaps, c.name))
		return err == nil
	})
	c.nodeFails(world.KindNotFound, c.get(world.ResourceSecrets, c.name))
	c.nodeFails(world.KindRefused, c.config("b"))
	c.nodeFails(world.KindRefused, c.change(world.ResourceConfigMaps, `{"data":{"key":"b"}}`))
	c.nodeFails(world.KindRefused, c.deletion(world.ResourceConfigMaps, c.name, nil))
}

func tokens(c *cluster) {
	p := c.admin(c.pod(func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "token", VolumeSource: v1.VolumeSource{
			Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
				ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}}}}}}
	})).Pod
	ask := func(seconds int64, uid string) *world.CreateToken {
		return &world.CreateToken{Namespace: c.w.Namespace(), ServiceAccount: "default",
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod",
					APIVersion: "v1", Name: c.name, UID: types.UID(uid)}}}
	}
	var token *world.TokenCreated
	c.soonIs("the node may ask for a token", func() bool {
		answer, _ := c.w.Call(ask(3600, string(p.UID)))
		token, _ = answer.(*world.TokenCreated)
		return token != nil
	})
	left := token.Expires.Sub(c.w.Now())
	c.check(token.Token != "" && left > 58*time.Minute && left < 62*time.Minute, "for %v", left)
	c.nodeFails(world.KindInvalid, ask(599, string(p.UID)))
	c.nodeFails(world.KindRefused, ask(3600, "00000000-0000-4000-8000-000000000000"))
	c.nodeFails(world.KindRefused, ask(3600, ""))
	unbound := ask(3600, string(p.UID))
	unbound.Spec.BoundObjectRef = nil
	c.nodeFails(world.KindRefused, unbound)
	unknown := ask(3600, string(p.UID))
	unknown.ServiceAccount = "nobody"
	c.nodeFails(world.KindRefused, unknown)
}
