package scsi

import (
	"fmt"
	"slices"
	"strings"

	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The commands of iscsiadm, in the order of a kubelet.

// command is a command of a login.
type command struct {
	args     []string
	password string // the last argument, which is secret
	isSecret bool   // it sets what the secret has, if that has it
	failure  string // what has failed if it fails
	mayFail  bool   // a failure does not matter
	accepted []int  // exit codes that are no failures
	undo     []string
	ofIface  bool // it makes the interface of the disk
	shows    bool // it shows the interface after which that is made
}

// The keys of the secret, which are the names of settings as well. Each is set if it has a value.
var (
	discoveryKeys = []string{"discovery.sendtargets.auth.username",
		"discovery.sendtargets.auth.password", "discovery.sendtargets.auth.username_in",
		"discovery.sendtargets.auth.password_in"}
	sessionKeys = []string{"node.session.auth.username", "node.session.auth.password",
		"node.session.auth.username_in", "node.session.auth.password_in"}
)

// commands returns the commands that make the interface of a disk, if it has one and that is not
// made, or else those that log in to the portal of the set-up. Their number does not depend on the
// secret: those of settings without a value are passed over.
func (d *Disk) commands(u *Use, secret map[string]string) []command {
	s := &d.Setup
	if d.Source.Initiator != "" && !s.IfaceMade {
		return d.ifaceCommands()
	}
	src := &d.Source
	discovery := func(args ...string) []string {
		return append([]string{"-m", "discoverydb", "-t", "sendtargets", "-p", s.Portal, "-I", src.Iface},
			args...)
	}
	node := func(args ...string) []string {
		return append([]string{"-m", "node", "-p", s.Portal, "-T", src.Target, "-I", src.Iface}, args...)
	}
	all := []command{{args: discovery("-o", "new"), mayFail: true}}
	if u.DiscoveryCHAP {
		all = append(all, settings(discovery, "discovery.sendtargets.auth.authmethod", discoveryKeys,
			secret)...)
	}
	all = append(all,
		command{args: discovery("--discover"), failure: "failed to sendtargets to portal " + s.Portal,
			undo: discovery("-o", "delete")},
		// Only the disks of volumes are to appear, not all that a target has (kubernetes issue 90982). An
		// old iscsiadm does not know the setting.
		command{args: node("-o", "update", "-n", "node.session.scan", "-v", "manual"), mayFail: true})
	if u.SessionCHAP {
		all = append(all, settings(node, "node.session.auth.authmethod", sessionKeys, secret)...)
	}
	return append(all,
		command{args: node("--login"), failure: "failed to attach disk",
			accepted: []int{world.ISCSISessionExists}, undo: node("-o", "delete")},
		// A machine that boots must not wait for it.
		command{args: []string{"-m", "node", "-p", s.Portal, "-T", src.Target, "-o", "update", "-n",
			"node.startup", "-v", "manual"}, mayFail: true})
}

// settings returns the commands that set CHAP for a discovery or a session.
func settings(on func(...string) []string, method string, keys []string,
	secret map[string]string) []command {
	all := []command{{args: on("-o", "update", "-n", method, "-v", "CHAP"),
		failure: "failed to update " + method}}
	for _, key := range keys {
		all = append(all, command{args: on("-o", "update", "-n", key, "-v"), isSecret: true,
			password: secret[key], failure: "failed to update " + key})
	}
	return all
}

// ifaceCommands returns the commands that make the interface of a disk (cloneIface upstream).
func (d *Disk) ifaceCommands() []command {
	src, s := &d.Source, &d.Setup
	if !s.IfaceShown {
		return []command{{args: []string{"-m", "iface", "-I", src.BaseIface, "-o", "show"}, shows: true,
			ofIface: true, failure: "failed to show iface records"}}
	}
	all := []command{{args: []string{"-m", "iface", "-I", src.Iface, "-o", "new"}, ofIface: true,
		failure: "failed to create new iface", accepted: []int{world.ISCSISessionExists}}}
	for i := 0; i+1 < len(s.Iface); i += 2 {
		if s.Iface[i] != initiatorSetting {
			all = append(all, d.ifaceUpdate(s.Iface[i], s.Iface[i+1]))
		}
	}
	return append(all, d.ifaceUpdate(initiatorSetting, src.Initiator))
}

const initiatorSetting = "iface.initiatorname"

func (d *Disk) ifaceUpdate(name, value string) command {
	return command{args: []string{"-m", "iface", "-I", d.Source.Iface, "-o", "update", "-n", name,
		"-v", value}, ofIface: true, failure: "failed to update iface records"}
}

// ifaceSettingsMax bounds the settings of an interface that are taken over; iscsiadm has about
// sixty.
const ifaceSettingsMax = 128

// parseIface returns the settings of an interface, sorted, in turns with their values
// (parseIscsiadmShow upstream). Lines that are no settings are left out.
func parseIface(output string) (settings []string) {
	var lines []string
	for line := range strings.SplitSeq(output, "\n") {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == "=" && strings.HasPrefix(f[0], "iface.") && f[2] != "<empty>" &&
			f[0] != "iface.iscsi_ifacename" && len(lines) < ifaceSettingsMax {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		f := strings.Fields(line)
		settings = append(settings, f[0], f[2])
	}
	return settings
}

// secretOf returns the content of the secret for CHAP; nil without CHAP. Known is false while it is
// being read.
func (d *Disk) secretOf(u *Use, env *Env) (data map[string]string, known bool, err error) {
	if !u.DiscoveryCHAP && !u.SessionCHAP {
		return nil, true, nil
	}
	name := u.Secret.Namespace + "/" + u.Secret.Name
	if env.Objects == nil {
		return nil, false, fmt.Errorf("couldn't get secret %s: there is no API server", name)
	}
	if len(d.Secrets) == 0 {
		return nil, false, fmt.Errorf("couldn't get secret %s: it is not read, as the pod, or all pods "+
			"of the node, refer to more than they may", name)
	}
	found := env.Objects.Lookup(world.ResourceSecrets, u.Secret.Namespace, u.Secret.Name)
	if found.Err != nil {
		return nil, false, fmt.Errorf("couldn't get secret %s error: %w", name, found.Err)
	}
	if !found.Known {
		return nil, false, nil
	}
	data = map[string]string{}
	for key, value := range found.Object.Secret.Data { //ordered: into a map
		if strings.ContainsAny(string(value), "\x00\n\r") || strings.HasPrefix(string(value), "-") {
			return nil, false, fmt.Errorf("secret %s: the value of %q begins with a dash, or has several "+
				"lines", name, key)
		}
		data[key] = string(value)
	}
	return data, true, nil
}

// watchSecret watches the secret of the use that a disk is set up with, until it is set up.
func (n *Node) watchSecret(d *Disk, env *Env) {
	if env.Objects == nil {
		return
	}
	needed := map[world.WatchTarget]bool{}
	if u := n.firstUse(d); u != nil && !d.isReady() {
		if (u.DiscoveryCHAP || u.SessionCHAP) && u.Secret != nil {
			target := world.WatchTarget{Resource: world.ResourceSecrets, Namespace: u.Secret.Namespace,
				Name: u.Secret.Name}
			if !u.Inline || env.Objects.HasUser(target, u.UID) {
				needed[target] = true
			}
		}
	}
	d.Secrets = env.Objects.ReplaceReferences(watchUser(d.Name), d.Secrets, needed, env.Enqueue,
		env.Effects)
}

// watchUser returns the user of what is watched for a disk.
func watchUser(name string) string { return Component + ":" + name }

// KeyOfUser returns the key of the disk that a watch has as its user; false for other users.
func KeyOfUser(user string) (key timer.Key, isDisk bool) {
	name, isDisk := strings.CutPrefix(user, Component+":")
	return DiskKey(name), isDisk
}
