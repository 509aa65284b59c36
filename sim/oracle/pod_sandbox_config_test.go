package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

func TestSandboxConfig(t *testing.T) {
	with := func(change func(*runtimeapi.PodSandboxConfig)) func(*script) {
		return func(s *script) {
			pod := spec("u1", always, "app")
			pod.Namespace, pod.Name, pod.Labels = "ns", "web", map[string]string{"app": "web"}
			pod.Spec.DNSPolicy = v1.DNSClusterFirst
			pod.Spec.Containers[0].Ports = []v1.ContainerPort{
				{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}}
			pod.Spec.SecurityContext = &v1.PodSecurityContext{
				Sysctls: []v1.Sysctl{{Name: "kernel/shm_rmid_forced", Value: "1"}}}
			s.model.opts.DNS = DNS{Servers: []string{"10.0.0.10"}, Domain: "cluster.test",
				Resolv: "nameserver 1.1.1.1\nsearch lab.test\n"}
			s.model.opts.LogsDir = "/var/log/pods"
			s.setDesired(pod)
			config := &runtimeapi.PodSandboxConfig{
				Hostname: "web", LogDirectory: "/var/log/pods/ns_web_u1",
				DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"},
					Searches: []string{"ns.svc.cluster.test", "svc.cluster.test", "cluster.test", "lab.test"},
					Options:  []string{"ndots:5"}},
				PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}},
				Labels: map[string]string{"app": "web", "io.kubernetes.pod.name": "web",
					"io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u1"},
				Annotations: map[string]string{annotationSource: "api", annotationSeen: "now",
					"seedlet.dev/allocation": "any"},
				Linux: &runtimeapi.LinuxPodSandboxConfig{
					Sysctls:   map[string]string{"kernel.shm_rmid_forced": "1"},
					Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000},
					SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
						NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
						Seccomp: &runtimeapi.SecurityProfile{
							ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
					},
				},
			}
			change(config)
			s.addFact(truth.SandboxCreated, truth.Fact{PodUID: "u1", SandboxID: "u1-s0",
				SandboxConfig: config})
		}
	}
	runCases(t, []testCase{
		{"as its spec says", "", with(func(*runtimeapi.PodSandboxConfig) {})},
		{"another host name", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.Hostname = "sim"
		})},
		{"the node's servers", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.DnsConfig.Servers = []string{"1.1.1.1"}
		})},
		{"no domains", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.DnsConfig.Searches = nil
		})},
		{"no port", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.PortMappings = nil
		})},
		{"no label", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			delete(c.Labels, "app")
		})},
		{"no sysctl", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.Sysctls = nil
		})},
		{"the network of the node", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
		})},
		{"another profile", "sandbox-config", with(func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.Seccomp.ProfileType = runtimeapi.SecurityProfile_Unconfined
		})},
	})
}
