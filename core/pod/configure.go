package pod

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/world"
)

// What the pod contributes to its translation into messages of the CRI (package criconfig), and
// when it can be translated.

// criPod returns the pod as package criconfig translates it.
func (p *Pod) criPod(env *Env) *criconfig.Pod {
	return &criconfig.Pod{
		Spec: p.Spec, Static: p.IsStatic(), Node: &env.Node.Node, Objects: env.Objects,
		IPs: p.IPs(env.Node), IDs: p.IDs, EnvFiles: p.envFilesByContainer(),
		Volumes: p.specIndex().volumes, Mounted: &p.Storage.Volumes,
	}
}

func (p *Pod) dir(node *Node) string { return node.PodDir(p.UID) }

func (p *Pod) logDir(node *Node) string { return node.PodLogDir(p.Namespace, p.Name, p.UID) }

// sandboxCgroup returns the path of the cgroup that a sandbox is in or will be in: the one that it
// was created in, or, for a new sandbox (nil), the one that follows from the spec.
func (p *Pod) sandboxCgroup(s *Sandbox, l *cgroup.Layout) string {
	if s != nil && l.IsPodPath(s.Cgroup, p.UID) {
		return s.Cgroup
	}
	return l.PodPath(p.UID, criconfig.QOS(p.Spec))
}

// SandboxConfig returns the configuration of the pod's current sandbox; nil if the pod is not
// desired or has no sandbox.
func (p *Pod) SandboxConfig(env *Env) *runtimeapi.PodSandboxConfig {
	s := p.CurrentSandbox()
	if p.Spec == nil || s == nil {
		return nil
	}
	return p.newSandboxConfig(s.Attempt, s, env)
}

// newSandboxConfig returns the configuration of a sandbox: of s, or of a new one if that is nil.
func (p *Pod) newSandboxConfig(attempt uint32, s *Sandbox, env *Env) *runtimeapi.PodSandboxConfig {
	if dns := p.Spec.Spec.DNSConfig; dns != nil {
		env.Effects.CountWork((len(dns.Options) + len(dns.Searches) + len(dns.Nameservers)) * workOfEntry)
	}
	return p.criPod(env).SandboxConfig(attempt, p.sandboxCgroup(s, &env.Node.Cgroups))
}

// workOfEntry is what each entry of the resolver's configuration and of /etc/hosts counts as work
// of a step.
const workOfEntry = 256

// canConfigureSandbox reports whether the sandbox can be configured: the node's resolv.conf has
// been read, and no name is too long. A name that is too long is recorded as a problem; only
// another spec can solve it.
func (p *Pod) canConfigureSandbox(env *Env) bool {
	if err := p.checkNames(env); err != nil {
		if p.ProblemOf("") == nil {
			p.Problems = append(p.Problems, Problem{
				Call: callConfigure, Reason: "ContainerCreating", Message: err.Error(),
			})
			p.recordEvents(env, configErrorEvent(p.ProblemOf("")))
		}
		return false
	}
	return env.Node.Resolv.Loaded
}

// checkNames returns an error if the host name is too long, or the name of the log directory. The
// kubelet creates that directory before the sandbox, and fails.
func (p *Pod) checkNames(env *Env) error {
	_, err := p.criPod(env).SandboxHostname()
	if err != nil && !p.Spec.Spec.HostNetwork {
		return err
	}
	dir := p.logDir(env.Node)
	if n := len(path.Base(dir)); n > world.NameBytesMax {
		return fmt.Errorf("failed to create the log directory of the pod, its name is too long "+
			"(%d bytes is the max, %d bytes requested): %s", world.NameBytesMax, n, dir)
	}
	return nil
}

// hasKnownEnvironment reports whether everything that a container's variables are taken from is
// known, or known not to exist. The pod's IPs are known when the sandbox has been inspected.
func (p *Pod) hasKnownEnvironment(container *v1.Container, env *Env) bool {
	return (p.CurrentSandbox().Inspected || !criconfig.NeedsPodIPs(container)) &&
		p.areReferencesKnown(container, env)
}

// targetID returns the ID of the container whose processes an ephemeral container sees; empty if it
// has no target. It fails if the target does not exist in the runtime.
func (p *Pod) targetID(name string) (string, error) {
	for i := range p.Spec.Spec.EphemeralContainers {
		c := &p.Spec.Spec.EphemeralContainers[i]
		if c.Name != name || c.TargetContainerName == "" {
			continue
		}
		if target := p.NewestRun(c.TargetContainerName); target != nil {
			return target.ID, nil
		}
		return "", fmt.Errorf("unable to find target container %v", c.TargetContainerName)
	}
	return "", nil
}

// callConfigure is the call of a problem with the translation of a pod or container into a request,
// which precedes the request itself.
const callConfigure = "ConfigureContainer"

// recordMisconfiguration reports whether a container cannot be created as the spec defines it, and
// records the problem. The problem follows from the spec, and from objects whose changes cause a
// plan of the pod, so there is no retry. Files in volumes have no such events: they are read again.
func (p *Pod) recordMisconfiguration(container *v1.Container, cri *criconfig.Pod, env *Env) bool {
	err := p.checkChanged(container)
	if err == nil {
		_, err = p.targetID(container.Name)
	}
	if err == nil {
		err = p.checkContainer(container, cri, env)
	}
	if err == nil {
		err = p.checkPullSecrets(container, env)
	}
	return p.recordConfigError(container, err, env)
}

// recordConfigError records why a container cannot be created as the spec defines it, and reports
// whether there is a reason.
func (p *Pod) recordConfigError(container *v1.Container, err error, env *Env) bool {
	var before Problem
	if pr := p.ProblemOf(container.Name); pr != nil {
		before = *pr
	}
	p.clearProblems(container.Name, callConfigure)
	if err == nil {
		return false
	}
	pr := p.ProblemOf(container.Name)
	if pr == nil {
		p.Problems = append(p.Problems, Problem{})
		pr = &p.Problems[len(p.Problems)-1]
	}
	*pr = Problem{
		Container: container.Name, Call: callConfigure,
		Reason: "CreateContainerConfigError", Message: err.Error(),
		NotBefore: p.envFilesExpireAt(container.Name),
	}
	if before.NotBefore = pr.NotBefore; *pr != before {
		p.recordFailureEvent(pr, env)
		p.countRefusal(budget.NameOf(err), env)
	}
	p.forgetEnvFiles(container.Name) // they are read again at NotBefore
	return true
}
