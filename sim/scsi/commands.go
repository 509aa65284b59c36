package scsi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The program iscsiadm, as far as the agent calls it.

// options are the options of a command.
type options struct {
	mode, target, portal, iface, op string
	name, value                     string
	login, logout, discover         bool
}

func parse(m *world.RunISCSIAdm) (o options) {
	args := slices.Clone(m.Args)
	if m.Password != "" {
		args = append(args, m.Password)
	}
	into := map[string]*string{"-m": &o.mode, "-T": &o.target, "-p": &o.portal, "-I": &o.iface,
		"-o": &o.op, "-n": &o.name, "-v": &o.value, "-t": new(string)}
	flags := map[string]*bool{"--login": &o.login, "--logout": &o.logout, "--discover": &o.discover}
	for i := 0; i < len(args); i++ {
		switch {
		case flags[args[i]] != nil:
			*flags[args[i]] = true
		case into[args[i]] != nil && i+1 < len(args):
			*into[args[i]] = args[i+1]
			i++
		default:
			panic("scsi: iscsiadm does not know " + args[i])
		}
	}
	return o
}

func (o *options) session() sessionName { return sessionName{o.target, o.portal, o.iface} }

// The exit codes of iscsiadm that the agent does not look at.
const (
	exitConnection = 4
	exitInvalid    = 7
	exitAuth       = 24
	exitBusy       = 28
)

func exit(code int, format string, args ...any) *world.ISCSIAdmRan {
	return &world.ISCSIAdmRan{ExitCode: code, Output: "iscsiadm: " + fmt.Sprintf(format, args...)}
}

// iscsiadm runs a command.
func (i *Initiator) iscsiadm(m *world.RunISCSIAdm) *world.ISCSIAdmRan {
	o := parse(m)
	switch {
	case o.mode == "iface":
		return i.iface(&o)
	case o.mode == "discoverydb" && o.discover:
		return i.discover(&o)
	case o.mode == "discoverydb":
		name := discoveryName{o.portal, o.iface}
		return change(i.portals, name, &o)
	case o.login:
		return i.logIn(o.session())
	case o.logout:
		return i.logOut(o.session())
	case o.op == "delete" && i.sessions[o.session()] != nil:
		return exit(exitInvalid, "This command will remove the record, but a session is using it")
	case o.iface == "": // of all interfaces
		found := exit(world.ISCSINothingFound, "No records found")
		for name, record := range i.records { //ordered: each by itself
			if name.target == o.target && name.portal == o.portal {
				record[o.name] = o.value
				found = &world.ISCSIAdmRan{}
			}
		}
		return found
	}
	return change(i.records, o.session(), &o)
}

// change makes, changes or removes a record. One of a node is made by a discovery alone.
func change[K comparable](records map[K]settings, name K, o *options) *world.ISCSIAdmRan {
	switch {
	case o.op == "new" && records[name] != nil:
		return exit(world.ISCSISessionExists, "exists")
	case o.op == "new":
		records[name] = settings{}
	case records[name] == nil:
		return exit(world.ISCSINothingFound, "No records found")
	case o.op == "update":
		records[name][o.name] = o.value
	case o.op == "delete":
		delete(records, name)
	}
	return &world.ISCSIAdmRan{}
}

func (i *Initiator) iface(o *options) *world.ISCSIAdmRan {
	if o.op != "show" || i.ifaces[o.iface] == nil {
		return change(i.ifaces, o.iface, o)
	}
	output := "# BEGIN RECORD 2.1\niface.iscsi_ifacename = " + o.iface +
		"\niface.ipaddress = <empty>\n"
	for _, name := range slices.Sorted(maps.Keys(i.ifaces[o.iface])) {
		output += name + " = " + i.ifaces[o.iface][name] + "\n"
	}
	return &world.ISCSIAdmRan{Output: output + "# END RECORD\n"}
}

// answers returns the target at a portal; nil if none answers.
func (i *Initiator) answers(portal string) *plan.ISCSITarget {
	if i.opts.Plan == nil {
		return nil
	}
	for n := range i.opts.Plan.Targets {
		t := &i.opts.Plan.Targets[n]
		if slices.Contains(t.Portals, portal) && (i.healed || !t.IsGone(i.sinceBeginning())) {
			return t
		}
	}
	return nil
}

// discover makes the records of all portals of a target.
func (i *Initiator) discover(o *options) *world.ISCSIAdmRan {
	t := i.answers(o.portal)
	if t == nil {
		return exit(exitConnection, "cannot make connection to %s", o.portal)
	}
	for _, portal := range t.Portals {
		name := sessionName{t.Name, portal, o.iface}
		if i.records[name] == nil {
			i.records[name] = settings{}
		}
	}
	return &world.ISCSIAdmRan{Output: fmt.Sprintf("%s,1 %s\n", o.portal, t.Name)}
}

func (i *Initiator) logIn(name sessionName) *world.ISCSIAdmRan {
	record, t := i.records[name], i.answers(name.portal)
	if record != nil && i.sessions[name] == nil {
		i.opts.Truth.Add(truth.Fact{Time: i.opts.Agenda.Now(), Kind: truth.SessionTried,
			Source: name.target, Path: name.portal, NewPath: name.iface, Settings: maps.Clone(record)})
	}
	switch {
	case record == nil:
		return exit(world.ISCSINothingFound, "No records found")
	case i.sessions[name] != nil:
		i.opts.Truth.Add(truth.Fact{Time: i.opts.Agenda.Now(), Kind: truth.SessionRepeated,
			Source: name.target, Path: name.portal, NewPath: name.iface})
		return exit(world.ISCSISessionExists, "a session is present")
	case t == nil || t.Name != name.target:
		return exit(8, "initiator reported error (8 - connection timed out)")
	case t.CHAP && (record["node.session.auth.authmethod"] != "CHAP" ||
		record["node.session.auth.username"] != plan.ISCSIUser(name.target) ||
		record["node.session.auth.password"] != plan.ISCSIPassword(name.target)):
		return exit(exitAuth, "login failed to authenticate with target %s", name.target)
	case !i.healed && i.failed[t.Name] < t.LoginsFail:
		i.failed[t.Name]++
		return exit(exitConnection, "initiator reported error (4 - encountered connection failure)")
	}
	i.open(name)
	return &world.ISCSIAdmRan{Output: "Login to [" + strings.Join([]string{name.iface, name.target,
		name.portal}, ", ") + "] successful."}
}

func (i *Initiator) logOut(name sessionName) *world.ISCSIAdmRan {
	s := i.sessions[name]
	switch {
	case s == nil:
		return exit(world.ISCSINothingFound, "No matching sessions found")
	case i.opts.Plan.SafeLogout && i.isMounted(s):
		return exit(exitBusy, "session is in use")
	}
	i.close(s, "")
	return &world.ISCSIAdmRan{}
}
