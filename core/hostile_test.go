package core

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/claim"
	"seedlet.dev/world"
)

// hostile is a kind of input that is as large as the API server takes it, or the runtime has it.
type hostile struct {
	name string
	size int // of the largest: 3 MiB of pod, 1 MiB of ConfigMap, 10,000 pods
	make func(n *fakeNode, size int)
}

// hostiles are the largest objects. Each changes a node whose agent has not been started.
var hostiles = []hostile{
	{"tokens", 16_500, func(n *fakeNode, size int) {
		p := podOfTokens("h", "h", size)
		p.Generation = 1 // the API server counts versions of a spec
		n.apiServer.put(p)
	}},
	{"secrets", 20_000, func(n *fakeNode, size int) {
		p := podOfSecrets("h", "h", size)
		p.Generation = 1
		n.apiServer.put(p)
	}},
	{"sources", 20_000, ofSpec(func(s *v1.PodSpec, size int) {
		source := &v1.ProjectedVolumeSource{}
		for range size {
			source.Sources = append(source.Sources, v1.VolumeProjection{
				ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: bigConfigMap}})
		}
		s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: source}}}
	})},
	{"items", 40_000, ofSpec(func(s *v1.PodSpec, size int) {
		source := &v1.ConfigMapVolumeSource{LocalObjectReference: bigConfigMap}
		for i := range size {
			source.Items = append(source.Items, v1.KeyToPath{Key: "k1", Path: fmt.Sprint("p/", i)})
		}
		s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: source}}}
	})},
	{"keys", 60_000, func(n *fakeNode, size int) {
		p := podOfVariables(n, size, 100)
		for i := range 100 {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
				VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: bigConfigMap}}})
		}
		mountAll(&p.Spec)
		n.apiServer.put(p)
	}},
	{"key variables", 60_000, func(n *fakeNode, size int) {
		n.apiServer.put(podOfVariables(n, size, 100))
	}},
	{"key variables within the bound", budget.OwnVariablesMax, func(n *fakeNode, size int) {
		n.apiServer.put(podOfVariables(n, size, 1))
	}},
	{"key variables of many containers", 16_000, func(n *fakeNode, size int) {
		putVariablesOfContainers(n, budget.ContainersMax, size, v1.EnvVar{Name: "A", Value: "$(A)"})
	}},
	{"key variables of many containers that cannot be created", 16_000, func(n *fakeNode, size int) {
		none := v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: bigConfigMap, Key: "none"}}}
		putVariablesOfContainers(n, budget.ContainersMax, size, none)
	}},
	{"variables of one object in many pods", perStepMax, func(n *fakeNode, size int) {
		putVariablesOfContainers(n, budget.ContainersMax, 16_000, v1.EnvVar{Name: "A", Value: "$(A)"})
		repeatPod(n, size)
		changeObjectAfter(n, 5*time.Second)
	}},
	{"files of one object in many pods", perStepMax, func(n *fakeNode, size int) {
		putFilesOfKey(n, 1, 60, 1<<20)
		repeatPod(n, size)
		changeObjectAfter(n, 5*time.Second)
	}},
	{"refused files of one object in many pods", perStepMax, func(n *fakeNode, size int) {
		putFilesOfKey(n, budget.VolumesMax, 65, 1<<20)
		repeatPod(n, size)
		changeObjectAfter(n, 5*time.Second)
	}},
	{"references to containers without storage limits", 5000, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", size)
		for range 2 * size {
			s.Containers[0].Env = append(s.Containers[0].Env, v1.EnvVar{Name: "A",
				ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{
					ContainerName: "zz", Resource: "limits.ephemeral-storage"}}})
		}
	})},
	{"containers without storage limits", 10_000, ofSpec(func(s *v1.PodSpec, size int) {
		for range size {
			s.Containers[0].Env = append(s.Containers[0].Env, v1.EnvVar{Name: "A",
				ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{
					Resource: "limits.ephemeral-storage"}}})
		}
	})},
	{"large pods that wait for admission", perStepMax - 1, putWaitingPods},
	{"secrets of many pods", perStepMax, func(n *fakeNode, size int) {
		p := podOfSecrets("h", "h", 20_000)
		p.Generation = 1
		n.apiServer.put(p)
		repeatPod(n, size)
	}},
	{"large objects", budget.ReferencesMax, putLargeObjects},
	{"large objects of many pods", perStepMax, func(n *fakeNode, size int) {
		putLargeObjects(n, budget.ReferencesMax)
		repeatPod(n, size)
	}},
	{"resolver options of many pods that wait for one image", perStepMax, func(n *fakeNode, size int) {
		ofSpec(func(s *v1.PodSpec, _ int) {
			s.DNSConfig = &v1.PodDNSConfig{}
			for i := range 30_000 {
				s.DNSConfig.Options = append(s.DNSConfig.Options,
					v1.PodDNSConfigOption{Name: fmt.Sprint("o", i)})
			}
		})(n, 0)
		repeatPod(n, size)
		failPullsUntil(n, 3*time.Second)
	}},
	{"host aliases of many pods that wait for one image", perStepMax, func(n *fakeNode, size int) {
		ofSpec(func(s *v1.PodSpec, _ int) {
			for i := range 30_000 {
				s.HostAliases = append(s.HostAliases, v1.HostAlias{IP: "10.0.0.1",
					Hostnames: []string{fmt.Sprint("h", i)}})
			}
		})(n, 0)
		repeatPod(n, size)
		failPullsUntil(n, 3*time.Second)
	}},
	{"long statuses of many pods", perStepMax, func(n *fakeNode, size int) {
		ofSpec(func(s *v1.PodSpec, _ int) {
			putLongMounts(s, budget.MountsOfPodMax, budget.MountPathsMax/budget.MountsOfPodMax)
		})(n, 0)
		repeatPod(n, size)
		n.machine.Addresses = []string{"192.0.2.1"}
		n.apiServer.onEffect = func(any) {
			if n.now.Second() > 4 {
				n.machine.Addresses = []string{"192.0.2.9"}
			}
		}
	}},
	{"files", 16_000, func(n *fakeNode, size int) { // each volume is within its bound
		n.apiServer.others = map[string]world.Object{"big": {ConfigMap: bigConfigMapOf(size)}}
		p := apiPodNamed("h", "h")
		p.Generation = 1
		for i := range budget.VolumesMax {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
				VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: bigConfigMap}}})
		}
		mountAll(&p.Spec)
		n.apiServer.put(p)
	}},
	{"files of a long annotation", 250_000, func(n *fakeNode, size int) {
		putFilesOfAnnotations(n, 66, map[string]string{ // the sandbox has no copy of it
			v1.LastAppliedConfigAnnotation: strings.Repeat("\x7f", size)})
	}},
	{"files of annotations", 32_000, func(n *fakeNode, size int) {
		putFilesOfAnnotations(n, 512, map[string]string{"a": strings.Repeat("\x7f", size)})
	}},
	{"files of a long key", 1 << 20, func(n *fakeNode, size int) {
		putFilesOfKey(n, budget.VolumesMax, 65, size)
	}},
	{"files of a long key within the bound of a volume", 1 << 20, func(n *fakeNode, size int) {
		putFilesOfKey(n, budget.VolumesMax, 60, size)
	}},
	{"files of a long key with nested mounts", 1 << 20, func(n *fakeNode, size int) {
		putFilesOfKey(n, 2, 60, size)
	}},
	{"files of long objects", 1 << 20, ofLongObjects},
	{"nested mounts", budget.MountsMax, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			name, long := fmt.Sprint("v", i), strings.Repeat("/"+strings.Repeat("a", 18), 256)
			s.Volumes = append(s.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: bigConfigMap}}})
			s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts,
				v1.VolumeMount{Name: "v0", MountPath: long + strings.Repeat("/b", i)})
		}
	})},
	{"mounts of many containers", 8, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", budget.MountsOfPodMax/8)
		for i := range budget.VolumesMax {
			s.Volumes = append(s.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		}
		for i := range s.Containers {
			c := &s.Containers[i]
			c.Image, c.ImagePullPolicy = fmt.Sprint("i", i), v1.PullAlways
			for k := range size { // the last ones take longest to find
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{
					Name: fmt.Sprint("v", budget.VolumesMax-1-k), MountPath: fmt.Sprint("/", k)})
			}
		}
	})},
	{"images", budget.ContainersMax, ofSpec(func(s *v1.PodSpec, size int) {
		s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: "volume", PullPolicy: v1.PullAlways}}}}
		s.Containers = containersOf("c", size)
		for i := range s.Containers {
			c := &s.Containers[i]
			c.Image, c.ImagePullPolicy = fmt.Sprint("i", i), v1.PullAlways
			c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}
	})},
	{"images of many pods", perStepMax, func(n *fakeNode, size int) {
		putPodsOfImages(n, size, budget.ContainersMax)
	}},
	{"images of many pods that exceed their budget", perStepMax, func(n *fakeNode, size int) {
		putPodsOfImages(n, size, 10_000)
	}},
	{"pull secrets", 20_000, func(n *fakeNode, size int) { // of 1 MB each
		putPullSecrets(n, 4, 100, func(secret, i int) string {
			return fmt.Sprintf("*%d-%06d.example.com", secret, i)
		}, size)
	}},
	{"pull secrets that all apply", 30_000, func(n *fakeNode, size int) {
		putPullSecrets(n, 1, 2, func(_, i int) string {
			bits := strings.NewReplacer("0", "a", "1", "?").Replace(fmt.Sprintf("%015b", i))
			return bits + "*.z"
		}, size)
	}},
	{"pull secrets within the bound", 1024, func(n *fakeNode, size int) {
		putPullSecrets(n, 1, 240, func(_, i int) string {
			if i < 12 { // as many may have wildcards of this length, which are slow to match
				return fmt.Sprintf("*%s%c.z", strings.Repeat("a", 28), 'b'+i)
			}
			return fmt.Sprintf("%s.z/m%d", strings.Repeat("a", 58), i)
		}, size)
		changePullSecretAfter(n, 40) // all containers wait by then
	}},
	{"image reference", 1_300_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers[0].Image = "r.io/" + strings.Repeat("a", size) + "//"
	})},
	{"image references within the bound", 16_300, ofSpec(func(s *v1.PodSpec, size int) {
		const each = 1_000
		for i := range max(size/each, 1) { // one plan parses those of one container
			name, length := fmt.Sprint("v", i), min(size, each)
			s.Volumes = append(s.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				Image: &v1.ImageVolumeSource{PullPolicy: v1.PullAlways,
					Reference: fmt.Sprintf("%0*d/b@!", length-4, i)}}})
			s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts,
				v1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	})},
	{"image volumes", budget.VolumesMax, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", 150)
		for i := range size {
			s.Volumes = append(s.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
				VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{
					Reference: fmt.Sprint("i", i), PullPolicy: v1.PullAlways}}})
			for c := range s.Containers {
				s.Containers[c].VolumeMounts = append(s.Containers[c].VolumeMounts,
					v1.VolumeMount{Name: fmt.Sprint("v", i), MountPath: fmt.Sprint("/", i)})
			}
		}
	})},
	{"variables", 50_000, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			s.Containers[0].Env = append(s.Containers[0].Env, v1.EnvVar{Name: fmt.Sprint("A", i),
				Value: fmt.Sprintf("$(A%d)$(A%d)", i-1, i-1)})
		}
	})},
	{"arguments", 50_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1000)}}
		for range size {
			s.Containers[0].Args = append(s.Containers[0].Args, "$(A)$(A)$(A)$(A)$(A)$(A)$(A)$(A)")
		}
	})},
	{"containers with probes that are too long", budget.ContainersMax, func(n *fakeNode, size int) {
		putProbes(n, size, 372) // 1.5 MiB each
	}},
	{"containers with probes that time out", budget.ContainersMax, func(n *fakeNode, size int) {
		putProbes(n, size, 7)
	}},
	{"containers with long variables that wait for images", budget.ContainersMax, putExpansions(nil)},
	{"containers with long variables that are misconfigured", budget.ContainersMax, putExpansions(
		&v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "unknown"}})},
	{"containers", 10_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", size)
	})},
	{"init containers", 10_000, ofSpec(func(s *v1.PodSpec, size int) {
		always := v1.ContainerRestartPolicyAlways
		s.InitContainers = containersOf("i", size)
		for i := range size {
			s.InitContainers[i].RestartPolicy = &always
		}
	})},
	{"ephemeral containers", 10_000, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			c := v1.EphemeralContainer{}
			c.Name, c.Image = fmt.Sprint("e", i), "i"
			s.EphemeralContainers = append(s.EphemeralContainers, c)
		}
	})},
	{"volumes", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			name := fmt.Sprint("v", i)
			s.Volumes = append(s.Volumes, v1.Volume{Name: name,
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts,
				v1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	})},
	{"mounts", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		for i := range size {
			s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, v1.VolumeMount{
				Name: "v", MountPath: fmt.Sprint("/m", i), SubPath: fmt.Sprint("s", i)})
		}
	})},
	{"ports", 40_000, putPorts},
	{"ports within the bound", budget.PortsMax, putPorts},
	{"host ports of many pods", 60, func(n *fakeNode, size int) {
		putPods(n, size, func(p *v1.Pod) { setHostPorts(p, budget.PortsMax) })
	}},
	{"resizes of many pods", 190, func(n *fakeNode, size int) { putResizes(n, size, 0) }},
	{"resizes of many pods with host ports", 60, func(n *fakeNode, size int) {
		putResizes(n, size, 300)
	}},
	{"host aliases", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			s.HostAliases = append(s.HostAliases, v1.HostAlias{IP: "10.0.0.1",
				Hostnames: []string{fmt.Sprint("h", i)}})
		}
	})},
	{"resolver options", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.DNSConfig = &v1.PodDNSConfig{}
		for i := range size {
			s.DNSConfig.Options = append(s.DNSConfig.Options,
				v1.PodDNSConfigOption{Name: fmt.Sprint("o", i)})
		}
	})},
	{"tolerations", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			s.Tolerations = append(s.Tolerations, v1.Toleration{Key: fmt.Sprint("k", i),
				Operator: v1.TolerationOpExists})
		}
	})},
	{"affinity", 20_000, ofSpec(func(s *v1.PodSpec, size int) {
		required := &v1.NodeSelector{}
		for i := range size {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, v1.NodeSelectorTerm{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: fmt.Sprint("k", i),
					Operator: v1.NodeSelectorOpDoesNotExist}}})
		}
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required}}
	})},
	{"resources", 20_000, ofSpec(setResources)},
	{"resources within the bound", budget.ContainersMax, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", size)
		setResources(s, budget.ResourcesMax/budget.ContainersMax)
	})},
	{"sysctls", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.SecurityContext = &v1.PodSecurityContext{}
		for i := range size {
			s.SecurityContext.Sysctls = append(s.SecurityContext.Sysctls,
				v1.Sysctl{Name: "net.ipv4.tcp_syncookies", Value: fmt.Sprint(i)})
		}
	})},
	{"groups", 400_000, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", budget.ContainersMax)
		s.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: make([]int64, size)}
	})},
	{"groups within the bound", budget.SupplementalGroupsMax, ofSpec(func(s *v1.PodSpec, size int) {
		s.Containers = containersOf("c", budget.ContainersMax)
		s.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: make([]int64, size)}
	})},
	{"groups of an image", 65_000, func(n *fakeNode, size int) { // by its /etc/group
		ofSpec(func(s *v1.PodSpec, _ int) {
			s.Containers = containersOf("c", budget.ContainersMax)
		})(n, size)
		groups := slices.Repeat([]int64{math.MaxInt32}, size)
		n.answer = func(effect any) any {
			request, isStatus := effect.(*runtimeapi.ContainerStatusRequest)
			if !isStatus {
				return nil
			}
			c := n.containers[request.ContainerId]
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: c.Id,
				State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.CreatedAt,
				User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
					SupplementalGroups: groups}}}}
		}
	}},
	{"names of resources", budget.ResourcesMax, ofSpec(func(s *v1.PodSpec, size int) {
		list := v1.ResourceList{} // of an amount that is not looked at
		for i := range size {
			list[v1.ResourceName(longResource(308, i))] = resource.MustParse("0")
		}
		s.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	})},
	{"names of resources in many containers", 4, ofSpec(func(s *v1.PodSpec, size int) {
		putLongResources(s, 308, size)
	})},
	{"names of resources within the bound", 4, ofSpec(func(s *v1.PodSpec, size int) {
		putLongResources(s, budget.ResourceNamesMax/budget.ResourcesMax/2, size)
	})},
	{"mount path", 450_000, ofSpec(func(s *v1.PodSpec, size int) { putLongMounts(s, 1, size) })},
	{"mount paths within the bound", budget.MountPathsMax / budget.MountsOfPodMax,
		ofSpec(func(s *v1.PodSpec, size int) { putLongMounts(s, budget.MountsOfPodMax, size) })},
	{"gates", 30_000, ofSpec(func(s *v1.PodSpec, size int) {
		for i := range size {
			s.ReadinessGates = append(s.ReadinessGates, v1.PodReadinessGate{
				ConditionType: v1.PodConditionType(fmt.Sprint("example.com/g", i))})
			s.ImagePullSecrets = append(s.ImagePullSecrets,
				v1.LocalObjectReference{Name: fmt.Sprint("s", i%200)})
		}
	})},
	{"labels", 10_000, func(n *fakeNode, size int) {
		p := apiPodNamed("h", "h")
		p.Generation = 1
		p.Labels, p.Annotations = map[string]string{}, map[string]string{}
		for i := range size {
			p.Labels[fmt.Sprint("l", i)], p.Annotations[fmt.Sprint("a", i)] = "x", "y"
		}
		n.apiServer.put(p)
	}},
	{"statuses", 10_000, func(n *fakeNode, size int) {
		p := apiPodNamed("h", "h")
		p.Generation = 1
		p.Spec.Containers = containersOf("c", size)
		for i := range size {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
				Name: p.Spec.Containers[i].Name, ContainerID: "r://1", RestartCount: 1})
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
				Type: v1.PodConditionType(fmt.Sprint("example.com/c", i)), Status: v1.ConditionTrue})
		}
		n.apiServer.put(p)
	}},
	{"services", 10_000, putServices},
	{"services within the bound", budget.VariablesMax / 7, putServices},
	{"pods", 10_000, func(n *fakeNode, size int) { putPods(n, size, func(*v1.Pod) {}) }},
	{"pods that have ended", 10_000, func(n *fakeNode, size int) {
		putPods(n, size, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	}},
	{"pods that run", 10_000, func(n *fakeNode, size int) {
		putPods(n, size, func(p *v1.Pod) { p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)} })
	}},
	{"pods that cannot run", 10_000, func(n *fakeNode, size int) {
		putPods(n, size, func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{}}
		})
	}},
}

var bigConfigMap = v1.LocalObjectReference{Name: "big"}

// bigConfigMapOf returns a ConfigMap of so many keys.
func bigConfigMapOf(size int) *v1.ConfigMap {
	data := map[string]string{}
	for i := range size {
		data[fmt.Sprint("k", i)] = ""
	}
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "big",
		ResourceVersion: "1"}, Data: data}
}

// putFilesOfAnnotations creates a pod of annotations with as many volumes as it may have, each with
// so many files of all annotations.
func putFilesOfAnnotations(n *fakeNode, files int, annotations map[string]string) {
	p := apiPodNamed("h", "h")
	p.Generation, p.Annotations = 1, annotations
	source := &v1.DownwardAPIVolumeSource{}
	for i := range files {
		source.Items = append(source.Items, v1.DownwardAPIVolumeFile{Path: fmt.Sprint(i),
			FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	for i := range budget.VolumesMax {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
			VolumeSource: v1.VolumeSource{DownwardAPI: source}})
	}
	mountAll(&p.Spec)
	n.apiServer.put(p)
}

// putFilesOfKey creates a ConfigMap of one key of so many bytes, and a pod with so many volumes,
// each with so many files of that key. Other volumes are mounted within the first one.
func putFilesOfKey(n *fakeNode, volumes, files, size int) {
	object := bigConfigMapOf(0)
	object.Data["k"] = strings.Repeat("x", size)
	n.apiServer.others = map[string]world.Object{"big": {ConfigMap: object}}
	source := &v1.ConfigMapVolumeSource{LocalObjectReference: bigConfigMap}
	for i := range files {
		source.Items = append(source.Items, v1.KeyToPath{Key: "k", Path: fmt.Sprint(i)})
	}
	p := apiPodNamed("h", "h")
	p.Generation = 1
	for i := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
			VolumeSource: v1.VolumeSource{ConfigMap: source}})
	}
	mounts := []v1.VolumeMount{{Name: "v0", MountPath: "/v"}}
	for i := range budget.NestedMountsMax {
		mounts = append(mounts, v1.VolumeMount{Name: "v1", MountPath: fmt.Sprint("/v/m", i)})
	}
	p.Spec.Containers[0].VolumeMounts = mounts
	mountAll(&p.Spec)
	n.apiServer.put(p)
}

// ofLongObjects creates ConfigMaps of one key of so many bytes, as many as a pod may refer to, and
// a pod with two such volumes.
func ofLongObjects(n *fakeNode, size int) {
	p, source := apiPodNamed("h", "h"), &v1.ProjectedVolumeSource{}
	p.Generation = 1
	n.apiServer.others = map[string]world.Object{}
	for i := range budget.ReferenceBytesMax>>20 - 1 {
		object := bigConfigMapOf(0)
		object.Name = fmt.Sprint("big", i)
		object.Data[object.Name] = object.Name + strings.Repeat("x", size-len(object.Name))
		n.apiServer.others[object.Name] = world.Object{ConfigMap: object}
		source.Sources = append(source.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: object.Name}}})
	}
	for i := range 2 {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
			VolumeSource: v1.VolumeSource{Projected: source}})
	}
	mountAll(&p.Spec)
	n.apiServer.put(p)
}

// ofSpec returns a kind that is one pod. It can refer to a ConfigMap of ten keys.
func ofSpec(change func(s *v1.PodSpec, size int)) func(*fakeNode, int) {
	return func(n *fakeNode, size int) {
		n.apiServer.others = map[string]world.Object{"big": {ConfigMap: bigConfigMapOf(10)}}
		p := apiPodNamed("h", "h")
		p.Generation = 1
		change(&p.Spec, size)
		if len(claim.UsesOf(p)) == 0 {
			mountAll(&p.Spec)
		}
		n.apiServer.put(p)
	}
}

// putLargeObjects creates a pod with volumes of so many ConfigMaps, each of which has as many bytes
// as the API server takes. They share their text.
func putLargeObjects(n *fakeNode, size int) {
	text := strings.Repeat("x", 1<<20)
	n.apiServer.others = map[string]world.Object{}
	p := apiPodNamed("h", "h")
	p.Generation = 1
	for i := range size {
		name := fmt.Sprint("large-", i)
		n.apiServer.others[name] = world.Object{ConfigMap: &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, UID: types.UID(name)},
			Data:       map[string]string{"key": text}}}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: name}}}})
	}
	mountAll(&p.Spec)
	n.apiServer.put(p)
}

// podOfVariables returns a pod that takes its variables so many times from a ConfigMap of so many
// keys, which the API server has.
func podOfVariables(n *fakeNode, keys, times int) *v1.Pod {
	n.apiServer.others = map[string]world.Object{"big": {ConfigMap: bigConfigMapOf(keys)}}
	p := apiPodNamed("h", "h")
	p.Generation = 1
	for i := range times {
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, v1.EnvFromSource{
			Prefix:       fmt.Sprint("P", i),
			ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: bigConfigMap}})
	}
	return p
}

// putVariablesOfContainers creates a pod of so many containers, each with a variable and with those
// of a ConfigMap of so many keys. Their images cannot be pulled.
func putVariablesOfContainers(n *fakeNode, containers, keys int, v v1.EnvVar) {
	p := podOfVariables(n, keys, 1)
	from := p.Spec.Containers[0].EnvFrom
	p.Spec.Containers = containersOf("c", containers)
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = fmt.Sprint("i", i), v1.PullAlways
		c.EnvFrom, c.Env = from, []v1.EnvVar{v}
	}
	n.failingCalls = map[string]bool{"PullImage": true}
	n.apiServer.put(p)
}

// putPullSecrets creates a pod of so many containers of different images, and its image pull
// secrets, each with credentials for so many registries. Its images cannot be pulled.
func putPullSecrets(n *fakeNode, secrets, containers int, registry func(secret, i int) string,
	registries int) {
	p := apiPodNamed("h", "h")
	p.Generation = 1
	p.Spec.Containers = containersOf("c", containers)
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = fmt.Sprintf("%s.z/n%d", strings.Repeat("a", 58), i), v1.PullAlways
	}
	n.failingCalls = map[string]bool{"PullImage": true} // so all containers wait at once
	n.apiServer.others = map[string]world.Object{}
	for k := range secrets {
		auths := map[string]map[string]string{}
		for i := range registries {
			auths[registry(k, i)] = map[string]string{"username": fmt.Sprint(i)}
		}
		data, err := json.Marshal(map[string]any{"auths": auths})
		if err != nil {
			panic(err)
		}
		name := fmt.Sprint("pull", k)
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
		n.apiServer.others[name] = world.Object{Secret: &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
			Type:       v1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{v1.DockerConfigJsonKey: data}}}
	}
	n.apiServer.put(p)
}

// putWaitingPods creates so many pods of many variables that do not fit beside 60 others, of which
// it is not known yet whether they run.
func putWaitingPods(n *fakeNode, size int) {
	putPods(n, 60, func(p *v1.Pod) { p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)} })
	for i := range size {
		p := apiPodNamed(fmt.Sprint("h", i), fmt.Sprint("h", i))
		c := &p.Spec.Containers[0]
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
		for k := range 16_000 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("V", k), Value: "x"})
		}
		n.apiServer.put(p)
	}
}

// failPullsUntil lets pulls of images fail, for so long after the start of the agent.
func failPullsUntil(n *fakeNode, wait time.Duration) {
	until := n.now.Add(wait)
	n.answer = func(effect any) any {
		if _, isPull := effect.(*runtimeapi.PullImageRequest); isPull && n.now.Before(until) {
			return world.Errorf(world.KindUnavailable, "PullImage", "away")
		}
		return nil
	}
}

// repeatPod makes the pod h so many pods.
func repeatPod(n *fakeNode, pods int) {
	h := n.apiServer.objects["default/h"]
	for i := range pods - 1 {
		p := h.DeepCopy()
		p.Name, p.UID = fmt.Sprint("h", i), types.UID(fmt.Sprint("h", i))
		n.apiServer.put(p)
	}
}

// putPodsOfImages creates so many pods, of which each has containers of images of their own.
func putPodsOfImages(n *fakeNode, pods, containers int) {
	for i := range pods {
		p := apiPodNamed(fmt.Sprint("h", i), fmt.Sprint("h", i))
		p.Generation = 1
		p.Spec.Containers = containersOf("c", containers)
		for k := range p.Spec.Containers {
			p.Spec.Containers[k].Image = fmt.Sprintf("registry.example.com/pod-%d/image-%d", i, k)
		}
		n.apiServer.put(p)
	}
}

// changeObjectAfter gives the ConfigMap another version, so long after the start of the agent.
func changeObjectAfter(n *fakeNode, wait time.Duration) {
	var watch world.WatchID
	at, isChanged := n.now.Add(wait), false
	n.apiServer.onEffect = func(effect any) {
		if e, ok := effect.(*world.WatchObjects); ok && e.Resource == world.ResourceConfigMaps {
			watch = e.Watch
		}
		if isChanged || n.now.Before(at) {
			return
		}
		isChanged = true
		object := n.apiServer.others["big"].ConfigMap.DeepCopy()
		object.ResourceVersion = "2"
		n.apiServer.undelivered = append(n.apiServer.undelivered, &world.ObjectChanged{
			Watch: watch, Object: world.Object{ConfigMap: object}})
	}
}

// changePullSecretAfter gives the only image pull secret another version after so many pulls.
func changePullSecretAfter(n *fakeNode, pulls int) {
	var watch world.WatchID
	n.apiServer.onEffect = func(effect any) {
		switch e := effect.(type) {
		case *world.WatchObjects:
			if e.Resource == world.ResourceSecrets {
				watch = e.Watch
			}
		case *runtimeapi.PullImageRequest:
			if pulls--; pulls == 0 {
				secret := n.apiServer.others["pull0"].Secret.DeepCopy()
				secret.ResourceVersion = "2"
				n.apiServer.undelivered = append(n.apiServer.undelivered, &world.ObjectChanged{
					Watch: watch, Object: world.Object{Secret: secret}})
			}
		}
	}
}

// putProbes creates a pod of so many containers, each with two probes whose commands refer so many
// times to 4 KiB. The commands time out.
func putProbes(n *fakeNode, containers, references int) {
	p := apiPodNamed("h", "h")
	p.Generation = 1
	p.Spec.Containers = containersOf("c", containers)
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Env = []v1.EnvVar{{Name: "A", Value: strings.Repeat("\x01", 4<<10)}}
		c.LivenessProbe = &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 6, FailureThreshold: 1000,
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}}
		for range references {
			c.LivenessProbe.Exec.Command = append(c.LivenessProbe.Exec.Command, "$(A)")
		}
		c.ReadinessProbe = c.LivenessProbe
	}
	n.answer = func(effect any) any {
		if _, isExec := effect.(*runtimeapi.ExecSyncRequest); isExec {
			return world.Errorf(world.KindTimeout, "ExecSync", "too late")
		}
		return nil
	}
	n.apiServer.put(p)
}

// putExpansions returns a kind that is one pod of many containers, each with 1.9 MiB of variables
// and as many arguments by a kilobyte of references. The last variable has a source. The images
// cannot be pulled.
func putExpansions(last *v1.EnvVarSource) func(n *fakeNode, size int) {
	return func(n *fakeNode, size int) {
		p := apiPodNamed("h", "h")
		p.Generation = 1
		p.Spec.Containers = containersOf("c", size)
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			c.Image, c.ImagePullPolicy = fmt.Sprint("i", i), v1.PullAlways
			c.Env = []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 400)},
				{Name: "B", Value: strings.Repeat("$(A)", 40)}, {Name: "C", Value: "$(B)$(B)$(B)$(B)"},
				{Name: "D", Value: "$(C)$(C)"}}
			for k := range 14 {
				c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("E", k), Value: "$(D)"})
				c.Args = append(c.Args, "$(D)")
			}
			if last != nil {
				c.Env = append(c.Env, v1.EnvVar{Name: "F", ValueFrom: last})
			}
		}
		n.failingCalls = map[string]bool{"PullImage": true}
		n.apiServer.put(p)
	}
}

func putServices(n *fakeNode, size int) {
	for i := range size {
		n.apiServer.services = append(n.apiServer.services, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", i),
				ResourceVersion: "1"},
			Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []v1.ServicePort{{Port: 80,
				TargetPort: intstr.FromInt32(80)}}}})
	}
	n.apiServer.put(apiPodNamed("h", "h"))
}

// setResources gives all containers so many resources.
func setResources(s *v1.PodSpec, size int) {
	list := v1.ResourceList{}
	for i := range size {
		list[v1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1Mi")
	}
	for i := range s.Containers {
		s.Containers[i].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// longResource returns the name of a resource, of so many bytes.
func longResource(bytes, i int) string {
	domain := slices.Repeat([]string{strings.Repeat("x", 60)}, 10)
	name := fmt.Sprintf("%d/%s", i, strings.Join(domain, "."))
	return name[:bytes]
}

// putLongResources has as many containers as a pod may have name so many resources.
func putLongResources(s *v1.PodSpec, bytes, size int) {
	list := v1.ResourceList{}
	for i := range size {
		list[v1.ResourceName(longResource(bytes, i))] = resource.MustParse("0")
	}
	s.Containers = containersOf("c", budget.ContainersMax)
	for i := range s.Containers {
		s.Containers[i].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// putLongMounts gives a pod so many mounts, whose paths have so many bytes.
func putLongMounts(s *v1.PodSpec, mounts, bytes int) {
	name := strings.Repeat("v", 63)
	s.Volumes = []v1.Volume{{Name: name, VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	const each = 128
	s.Containers = containersOf("c", (mounts+each-1)/each)
	for i := range mounts {
		c := &s.Containers[i/each]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, ReadOnly: true,
			MountPath: fmt.Sprintf("/%0*d", bytes-1, i)})
	}
}

// putPorts creates two pods, each of which is checked against the other.
func putPorts(n *fakeNode, size int) {
	for subnet, name := range []string{"h", "neighbour"} { // each is checked against the other
		p := apiPodNamed(name, name)
		p.Generation = 1
		for i := range size {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{
				HostPort: int32(1 + i%65535), ContainerPort: int32(1 + i%65535),
				HostIP: fmt.Sprintf("10.0.%d.%d", subnet, i%250)})
		}
		n.apiServer.put(p)
	}
}

// setHostPorts gives a pod so many host ports, at addresses that no other pod has.
func setHostPorts(p *v1.Pod, size int) {
	for i := range size {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{
			HostPort: int32(1 + i), ContainerPort: int32(1 + i), HostIP: "10.0.0." + string(p.UID)})
	}
}

// putResizes creates so many pods of so many host ports, each of which asks for more than the node
// has once it runs.
func putResizes(n *fakeNode, size, ports int) {
	putPods(n, size, func(p *v1.Pod) {
		withRequests(p, "1m", 0).Generation = 1
		setHostPorts(p, ports)
	})
	at, areResized := n.now.Add(5*time.Second), false
	n.apiServer.onEffect = func(any) {
		if areResized || n.now.Before(at) {
			return
		}
		areResized = true
		for i := range size {
			p := n.apiServer.objects[fmt.Sprintf("default/p%05d", i)].DeepCopy()
			p.Generation++
			n.apiServer.put(withRequests(p, "100", 0))
		}
	}
}

func containersOf(prefix string, size int) []v1.Container {
	var containers []v1.Container
	for i := range size {
		containers = append(containers, v1.Container{Name: fmt.Sprint(prefix, i), Image: "i"})
	}
	return containers
}

func putPods(n *fakeNode, size int, change func(*v1.Pod)) {
	for i := range size {
		p := apiPodNamed(fmt.Sprintf("p%05d", i), fmt.Sprintf("u%05d", i))
		change(p)
		n.apiServer.put(p)
	}
}

// cost is what the steps of an agent have cost.
type cost struct {
	steps         int
	longest       time.Duration
	longestEvent  string
	allocations   uint64 // of all steps
	bytes, atOnce uint64 // allocated by all steps, and by one at most
}

// hostileStepsMax bounds the steps that are looked at. The first ones are the expensive ones.
const hostileStepsMax = 1500

// drive starts an agent on a node with a hostile object beside an ordinary pod, and returns what
// its steps cost until it has nothing to do, or has done enough. Each step is timed if asked to.
func (h *hostile) drive(size int, elapsed func() time.Duration) (*fakeNode, cost) {
	n := newNode(nil)
	n.apiServer, n.stepsMax, n.podsMax = newServer(), 10_000_000, 200
	n.apiServer.put(apiPodNamed("web", "web"))
	h.make(n, size)
	n.apiServer.undelivered = nil
	var c cost
	var before, after runtime.MemStats
	n.measure = func(ev world.Event, step func(world.Event) []world.Effect) ([]world.Effect, bool) {
		runtime.ReadMemStats(&before)
		began := elapsed()
		effects := step(ev)
		if took := elapsed() - began; took > c.longest {
			c.longest, c.longestEvent = took, fmt.Sprintf("%d %s", c.steps, world.BodyName(ev.Body))
		}
		runtime.ReadMemStats(&after)
		c.steps++
		c.allocations += after.Mallocs - before.Mallocs
		c.bytes += after.TotalAlloc - before.TotalAlloc
		c.atOnce = max(c.atOnce, after.TotalAlloc-before.TotalAlloc)
		return effects, c.steps >= hostileStepsMax
	}
	n.restart()
	for range 20 {
		if c.steps < hostileStepsMax {
			n.advance(500 * time.Millisecond)
		}
	}
	return n, c
}

// The status of a hostile pod, which repeats much of the spec and of what the runtime reports, is
// one that the API server takes: it is far below 1.5 MiB, and so is each patch.
func TestStatusesOfHostilePodsAreBounded(t *testing.T) {
	still := func() time.Duration { return 0 }
	for _, h := range hostiles {
		isRepeated := slices.ContainsFunc([]string{"groups", "names", "mount", "resources within"},
			func(prefix string) bool { return strings.HasPrefix(h.name, prefix) })
		if !isRepeated || h.name == "mounts" { // which are too many
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			longest, first := 0, h.make
			h.make = func(n *fakeNode, size int) {
				first(n, size)
				n.apiServer.onEffect = func(effect any) {
					if patch, isPatch := effect.(*world.PatchObject); isPatch {
						longest = max(longest, len(patch.Patch))
					}
				}
			}
			n, _ := h.drive(h.size, still)
			encoded, err := json.Marshal(n.agent.servedPod("h").Status)
			if err != nil || len(encoded) > 1<<20 || longest == 0 || longest > 1<<20 {
				t.Errorf("a status of %d bytes, and a patch of %d: %v", len(encoded), longest, err)
			}
			isOver := strings.Contains(n.waitingMessage("h"), "one pod may have")
			want := !strings.Contains(h.name, "within") && !strings.HasPrefix(h.name, "groups of") &&
				!strings.HasPrefix(h.name, "mounts of")
			if isOver != want {
				t.Errorf("over a bound: %t, the pod says %q", isOver, n.waitingMessage("h"))
			}
			if entry := n.agent.state.Allocation.Allocated.Get("h"); isOver && entry != nil {
				t.Error("resources are allocated to a pod that never starts")
			}
			t.Logf("a status of %d bytes, patches of up to %d", len(encoded), longest)
		})
	}
}

// No step does more work than linear in the size of one object: twice the size costs about twice
// the allocations, give or take the growth of a map. Quadratic work would cost four times as many.
func TestHostileGrowsLinearly(t *testing.T) {
	still := func() time.Duration { return 0 }
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			size := min(h.size/8, 1000)
			if strings.Contains(h.name, "containers") || strings.Contains(h.name, "pods") ||
				slices.Contains([]string{"mounts", "volumes", "statuses", "keys"}, h.name) {
				size = 20 // an agent is driven through operations of each
			}
			_, once := h.drive(size, still)
			_, twice := h.drive(2*size, still)
			perStep := func(c cost) float64 { return float64(c.allocations) / float64(c.steps) }
			if grows := perStep(twice) / perStep(once); grows > 3 {
				t.Errorf("allocations of a step grow by %.1f: %d in %d steps, then %d in %d", grows,
					once.allocations, once.steps, twice.allocations, twice.steps)
			}
			if once.atOnce > 1<<20 && twice.atOnce > 7*once.atOnce/2 {
				t.Errorf("one step allocates %d bytes, and %d for twice the size", once.atOnce,
					twice.atOnce)
			}
		})
	}
}
