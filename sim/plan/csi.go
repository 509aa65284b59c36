package plan

import (
	"errors"
	"fmt"
)

// CSIDriver is the node service of a plugin that is a CSI driver. Its name and its endpoint are
// those that the plugin answers.
type CSIDriver struct {
	NodeID     string            `json:"nodeID,omitempty"` // empty: the name of the node
	VolumesMax int64             `json:"volumesMax,omitempty"`
	Topology   map[string]string `json:"topology,omitempty"`

	NoStage     bool `json:"noStage,omitempty"`     // without STAGE_UNSTAGE_VOLUME
	MultiWriter bool `json:"multiWriter,omitempty"` // with SINGLE_NODE_MULTI_WRITER
	MountGroup  bool `json:"mountGroup,omitempty"`  // with VOLUME_MOUNT_GROUP
	NoExpand    bool `json:"noExpand,omitempty"`    // without EXPAND_VOLUME
	NoStats     bool `json:"noStats,omitempty"`     // without GET_VOLUME_STATS
	Condition   bool `json:"condition,omitempty"`   // with VOLUME_CONDITION

	// Hangs is for how many calls for volumes the driver does not answer; -1: all.
	Hangs int `json:"hangs,omitempty"`
	// Lies is how many of its first publishes do nothing, and succeed.
	Lies int `json:"lies,omitempty"`
}

func (d *CSIDriver) validate(c *PluginChange) error {
	switch {
	case d == nil:
		return nil
	case c.Gone:
		return errors.New("driver: want none, as the plugin is gone")
	case d.Lies < 0:
		return fmt.Errorf("driver.lies: want 0 or more, have %d", d.Lies)
	case d.Hangs < -1:
		return fmt.Errorf("driver.hangs: want -1 or more, have %d", d.Hangs)
	}
	return nil
}
