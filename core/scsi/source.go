package scsi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// What a volume says of its disk, and what of that is accepted. All of it becomes a part of a path
// or an argument of a command, and the author of a pod may have written it.

const (
	portDefault  = "3260"
	ifaceDefault = "default"
	optionsMax   = 64
	textMax      = 256 // bytes of a name
	dataMax      = 64 << 10
)

// fields are what volumes of both forms have in common.
type fields struct {
	portal, target, iface, fsType        string
	portals                              []string
	lun                                  int32
	initiator                            *string
	discoveryCHAP, sessionCHAP, readOnly bool
}

// InlineUse returns the use of a disk that is written in a pod.
func InlineUse(pod *v1.Pod, v *v1.Volume) Use {
	s := v.ISCSI
	u := useOf(pod, v.Name, v.Name, fields{s.TargetPortal, s.IQN, s.ISCSIInterface, s.FSType,
		s.Portals, s.Lun, s.InitiatorName, s.DiscoveryCHAPAuth, s.SessionCHAPAuth, s.ReadOnly})
	u.Inline = true
	if s.SecretRef != nil {
		u.Secret = &v1.SecretReference{Namespace: pod.Namespace, Name: s.SecretRef.Name}
	}
	return u
}

// PersistentUse returns the use of a persistent volume by a pod. Whether it is read-only is up to
// the pod (getISCSIVolumeInfo upstream).
func PersistentUse(pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume, readOnly bool) Use {
	s := pv.Spec.ISCSI
	u := useOf(pod, v.Name, pv.Name, fields{s.TargetPortal, s.IQN, s.ISCSIInterface, s.FSType,
		s.Portals, s.Lun, s.InitiatorName, s.DiscoveryCHAPAuth, s.SessionCHAPAuth, readOnly})
	u.setMode(pod, v, pv)
	if s.SecretRef != nil {
		u.Secret = &v1.SecretReference{Namespace: cmp.Or(s.SecretRef.Namespace, pod.Namespace),
			Name: s.SecretRef.Name}
	}
	return u
}

func useOf(pod *v1.Pod, volume, specName string, f fields) Use {
	s := Source{Target: f.target, LUN: f.lun, Iface: cmp.Or(f.iface, ifaceDefault), Volume: specName}
	for _, portal := range append([]string{f.portal}, f.portals...) {
		if portal = withPort(portal); !slices.Contains(s.Portals, portal) {
			s.Portals = append(s.Portals, portal)
		}
	}
	s.BaseIface = s.Iface
	if f.initiator != nil && *f.initiator != "" {
		s.Initiator, s.Iface = *f.initiator, s.Portals[0]+":"+specName
	}
	return Use{UID: string(pod.UID), Volume: volume, SpecName: specName, Source: s,
		ReadOnly: f.readOnly, FSType: cmp.Or(f.fsType, "ext4"),
		DiscoveryCHAP: f.discoveryCHAP, SessionCHAP: f.sessionCHAP,
		Unique: iscsiPluginName + f.portal + ":" + f.target + ":" + strconv.Itoa(int(f.lun))}
}

// withPort returns a portal with its port (portalMounter upstream).
func withPort(portal string) string {
	if !strings.Contains(portal, ":") {
		return portal + ":" + portDefault
	}
	return portal
}

// targetKinds begin the names of targets (RFC 3720, 3.2.6).
var targetKinds = []string{"iqn.", "eui.", "naa."}

// What is accepted is what the API server accepts (ValidateISCSIVolumeSource in
// pkg/apis/core/validation), without what is a path or an option. The server checks neither portals
// nor interfaces, and lets slashes pass in the names of targets.
var (
	targetName = regexp.MustCompile(
		`^(iqn\.\d{4}-\d{2}\.[0-9A-Za-z.-]+(:[^,;*&$|\s/\\\x00-\x1f\x7f]+)?|eui\.[0-9A-Fa-f]{16}|` +
			`naa\.[0-9A-Fa-f]{32}|naa\.[0-9A-Fa-f]{16})$`)
	portalName = regexp.MustCompile(
		`^([0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?|\[[0-9A-Fa-f:.]+\]):\d{1,5}$`)
	ifaceName = regexp.MustCompile(`^[0-9A-Za-z\[][0-9A-Za-z_.:\[\]@-]*$`)
	fsName    = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.-]*$`)
)

// check returns why a disk cannot be used, with the field of the volume; nil if it may.
func (u *Use) check() error {
	if n := len(u.Source.Portals); n > budget.PortalsMax {
		return budget.Portals.Errorf("iscsi.portals: the volume has %d portals, and one may have %d", n,
			budget.PortalsMax)
	}
	if problem := u.findWrongField(); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// findWrongField returns what is wrong with a field of the volume; empty if nothing is.
func (u *Use) findWrongField() string {
	switch {
	case u.SpecName == "" || len(u.SpecName) > world.NameBytesMax || u.SpecName == "." ||
		u.SpecName == ".." || strings.ContainsAny(u.SpecName, "/\x00\n"):
		return "the name of the volume is none that a directory can have"
	case !fsName.MatchString(u.FSType) || len(u.FSType) > textMax:
		return u.Source.dir() + ".fsType: not the name of a type of file systems"
	case len(u.Options) > optionsMax:
		return fmt.Sprintf("mountOptions: more than %d", optionsMax)
	case slices.ContainsFunc(u.Options, func(o string) bool {
		return strings.HasPrefix(o, "-") || strings.ContainsAny(o, "\x00\n\r")
	}):
		return "mountOptions: one begins with a dash, or has several lines"
	case (u.DiscoveryCHAP || u.SessionCHAP) && u.Secret == nil:
		return "iscsi.secretRef: required for CHAP"
	}
	return checkSource(&u.Source)
}

// checkSource returns why a disk is none, with the field of the volume.
func checkSource(s *Source) string {
	if s.IsFC {
		return checkFC(s)
	}
	switch {
	case !targetName.MatchString(s.Target) || len(s.Target) > textMax:
		return "iscsi.iqn: not the name of a target, or one with a slash"
	case s.LUN < 0 || s.LUN > 255:
		return "iscsi.lun: not between 0 and 255"
	case s.BaseIface != "" && !isIface(s.BaseIface), !isIface(s.Iface):
		return "iscsi.iscsiInterface: not the name of an interface"
	case s.Initiator != "" && (!targetName.MatchString(s.Initiator) || len(s.Initiator) > textMax):
		return "iscsi.initiatorName: not the name of an initiator"
	case len(s.Portals) == 0 || len(s.Portals) > budget.PortalsOfDiskMax:
		return fmt.Sprintf("iscsi.portals: not 1 to %d", budget.PortalsOfDiskMax)
	}
	for i, portal := range s.Portals {
		if !portalName.MatchString(portal) || len(portal) > textMax {
			field := "iscsi.targetPortal"
			if i > 0 {
				field = "iscsi.portals"
			}
			return field + ": one is neither HOST:PORT nor [IPv6]:PORT"
		}
	}
	for part := range strings.SplitSeq(diskName(s, false), "/") {
		if len(part) > world.NameBytesMax {
			return "iscsi: the portal, the target and the interface are too long for a directory"
		}
	}
	return ""
}

func isIface(name string) bool { return ifaceName.MatchString(name) && len(name) <= textMax }

// data is iscsi.json, with the keys of a kubelet (iscsiDisk upstream).
type data struct {
	VolName, Iqn, Lun, InitIface, Iface, InitiatorName string
	Portals                                            []string
}

func (s *Source) encode() []byte {
	text, err := json.Marshal(data{VolName: s.Volume, Iqn: s.Target, Lun: strconv.Itoa(int(s.LUN)),
		InitIface: s.BaseIface, Iface: s.Iface, InitiatorName: s.Initiator, Portals: s.Portals})
	if err != nil {
		panic("scsi: encoding what a disk is: " + err.Error())
	}
	return append(text, '\n')
}

// decodeSource returns what iscsi.json says; false if it says nothing that is accepted.
func decodeSource(text []byte) (Source, bool) {
	var of data
	if err := json.Unmarshal(text, &of); err != nil {
		return Source{}, false
	}
	lun, err := strconv.ParseInt(of.Lun, 10, 32)
	s := Source{Portals: of.Portals, Target: of.Iqn, LUN: int32(lun), Iface: of.Iface,
		BaseIface: of.InitIface, Initiator: of.InitiatorName, Volume: of.VolName}
	return s, err == nil && checkSource(&s) == ""
}

func (s *Source) unit() world.LogicalUnit {
	return world.LogicalUnit{Target: s.Target, LUN: s.LUN, WWNs: s.WWNs, WWIDs: s.WWIDs}
}

// sharesTarget reports whether two disks may have a session, or of fibre channel the disk, in
// common.
func (s *Source) sharesTarget(o *Source) bool {
	if s.IsFC || o.IsFC {
		return s.IsFC && o.IsFC && isSameUnit(s, o)
	}
	return s.Target == o.Target
}

// hasOwnIface reports whether the interface was made for the disk (detachISCSIDisk upstream).
func (s *Source) hasOwnIface() bool {
	return s.Initiator != "" && s.Iface == s.Portals[0]+":"+s.Volume
}
