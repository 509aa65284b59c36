package plan

import (
	"errors"
	"fmt"
	"time"
)

// ISCSI is the network of disks of the node: targets, and the program that logs in to them.
type ISCSI struct {
	Targets []ISCSITarget `json:"targets"`
	// InstalledAt is when iscsiadm is installed; zero: it always is.
	InstalledAt Duration `json:"installedAt,omitempty"`
	// SafeLogout is set if a session is not logged out while a disk of it is mounted
	// (iscsid.safe_logout).
	SafeLogout bool `json:"safeLogout,omitempty"`
}

// ISCSITarget is a target. It has a disk of any LUN.
type ISCSITarget struct {
	Name    string   `json:"name"`
	Portals []string `json:"portals"`
	// LoginsFail is how many of its first logins fail, and Hangs how many of its first commands do not
	// end; what a hung login has started may end without it.
	LoginsFail int `json:"loginsFail,omitempty"`
	Hangs      int `json:"hangs,omitempty"`
	// DiskTakes is the most that a disk takes to appear after a scan.
	DiskTakes Duration `json:"diskTakes,omitempty"`
	Multipath bool     `json:"multipath,omitempty"` // multipathd joins the disks of its portals
	CHAP      bool     `json:"chap,omitempty"`      // it has sessions of its ISCSIUser alone
	// GoneAt is when no portal of it answers for GoneFor. Sessions that exist stay.
	GoneAt  Duration `json:"goneAt,omitempty"`
	GoneFor Duration `json:"goneFor,omitempty"`
}

// ISCSIClass is the class of claims that get the disks of targets.
const ISCSIClass = "iscsi"

// ISCSIUser returns the user that a target with CHAP asks for.
func ISCSIUser(target string) string { return "node-1" + ofSecond(target, "-odd") }

// ISCSIPassword returns the password of that user.
func ISCSIPassword(target string) string { return "correct-horse" + ofSecond(target, "-battery") }

// ISCSISecret returns the name of the Secret that has both: the second target has another one.
func ISCSISecret(target string) string { return "chap" + ofSecond(target, "-odd") }

func ofSecond(target, suffix string) string {
	if target == ISCSITargetName(1) {
		return suffix
	}
	return ""
}

// ISCSITargetName returns the name of a target of a plan.
func ISCSITargetName(i int) string { return fmt.Sprintf("iqn.2026-11.test.seedlet:target-%d", i) }

// ISCSIPortal returns a portal of a target.
func ISCSIPortal(target, i int) string { return fmt.Sprintf("10.8.%d.%d:3260", target, i+1) }

// HasISCSI reports whether a plan has targets.
func (s *Spec) HasISCSI() bool { return s.ISCSI != nil && len(s.ISCSI.Targets) > 0 }

func (i *ISCSI) validate() error {
	if i == nil {
		return nil
	}
	for n := range i.Targets {
		t := &i.Targets[n]
		switch {
		case t.Name == "" || len(t.Portals) == 0:
			return fmt.Errorf("targets[%d]: want a name and portals", n)
		case t.LoginsFail < 0 || t.Hangs < 0:
			return errors.New("loginsFail, hangs: want 0 or more")
		}
	}
	return nil
}

// ISCSIRange is which targets there are, and what happens to them.
type ISCSIRange struct {
	Targets Count `json:"targets,omitempty"`
	Portals Count `json:"portals,omitempty"` // of each

	LoginsFail Count `json:"loginsFail,omitempty"` // as in ISCSITarget
	Hangs      Count `json:"hangs,omitempty"`
	DiskTakes  Span  `json:"diskTakes,omitempty"`
	Multipath  Share `json:"multipath,omitempty"` // of targets
	CHAP       Share `json:"chap,omitempty"`
	Gone       Share `json:"gone,omitempty"`
	GoneFor    Span  `json:"goneFor,omitempty"`

	SafeLogout   Share `json:"safeLogout,omitempty"` // of nodes
	NotInstalled Share `json:"notInstalled,omitempty"`
}

// addISCSI generates the network of disks.
func (g *generator) addISCSI() {
	c := &g.scenario.Spec.ISCSI
	if c.Targets.Most == 0 {
		return
	}
	r := g.stream("iscsi")
	spec := &ISCSI{SafeLogout: c.SafeLogout.drawBool(r)}
	if c.NotInstalled.drawBool(r) {
		spec.InstalledAt = 1 + g.randomTime(r)/2
	}
	for i := range c.Targets.draw(r) {
		t := ISCSITarget{Name: ISCSITargetName(i), Multipath: c.Multipath.drawBool(r),
			CHAP: c.CHAP.drawBool(r), DiskTakes: Duration(c.DiskTakes.draw(r)),
			LoginsFail: g.occurrences(fmt.Sprintf("iscsi logins %d", i), c.LoginsFail, false),
			Hangs:      g.occurrences(fmt.Sprintf("iscsi hangs %d", i), c.Hangs, false)}
		for n := range max(1, c.Portals.draw(r)) {
			t.Portals = append(t.Portals, ISCSIPortal(i, n))
		}
		if c.Gone.drawBool(r) {
			t.GoneAt, t.GoneFor = g.randomTime(r), Duration(c.GoneFor.draw(r))
		}
		spec.Targets = append(spec.Targets, t)
	}
	g.plan.Spec.ISCSI = spec
}

// IsGone reports whether no portal of a target answers at a time after the beginning.
func (t *ISCSITarget) IsGone(at time.Duration) bool {
	return t.GoneFor > 0 && at >= time.Duration(t.GoneAt) && at < time.Duration(t.GoneAt+t.GoneFor)
}
