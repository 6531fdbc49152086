// Copyright (c) 2026 The attested.kubernetes authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command flannel runs flannel's backend host-gw on a node with subnets of the Kubernetes API, and rules in nftables.
// When the network is ready, it writes the configuration of the CNI plugin bridge for the Pods of this node.
//
// It stands in for flanneld, which needs a C compiler for its backend udp and libraries of clouds for others (docs/adr/0078).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
	"github.com/vishvananda/netlink"
	log "k8s.io/klog/v2"
)

const (
	annotations   = "flannel.alpha.coreos.com"
	networkConfig = "/etc/kube-flannel/net-conf.json"
	subnetFile    = "/run/flannel/subnet.env"
	cniDirectory  = "/etc/cni/net.d"
	cniFile       = "10-flannel.conflist"
	resyncSeconds = 5 // of rules in iptables; those in nftables are written once
)

func main() {
	ready := flag.Bool("ready", false, "say by the exit code whether the network of this node is ready")
	flag.Parse()
	if *ready {
		if _, err := os.Stat(subnetFile); err != nil {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("HOST_IP")); err != nil && !errors.Is(err, context.Canceled) {
		log.Exitf("flannel ends: %v", err)
	}
}

// run connects this node to the Pods of the others until ctx ends. The API names the node by NODE_NAME.
func run(ctx context.Context, address string) error {
	if err := os.Remove(subnetFile); err != nil && !os.IsNotExist(err) { // of a container before this one
		return err
	}
	manager, err := kube.NewSubnetManager(ctx, "", "", annotations, networkConfig, true)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	network, wait, err := register(ctx, manager, config, address)
	if err != nil {
		return err
	}
	defer wait.Wait()
	if err := dropRoutes(network.Lease().Subnet); err != nil {
		return err
	}
	if err := writeRules(ctx, config, network.Lease()); err != nil {
		return err
	}
	wait.Add(1)
	go func() {
		network.Run(ctx)
		wait.Done()
	}()
	if err := writeCNI(network.Lease().Subnet.String(), network.MTU()); err != nil {
		return err
	}
	if err := manager.HandleSubnetFile(subnetFile, config, true, network.Lease().Subnet, network.Lease().IPv6Subnet, network.MTU()); err != nil {
		return err
	}
	if err := manager.CompleteLease(ctx, network.Lease(), wait); err != nil {
		return err
	}
	log.Infof("ready: Pods of this node have addresses of %s", network.Lease().Subnet)
	<-ctx.Done()
	return nil
}

// register announces the subnet and the address of this node to the others.
func register(ctx context.Context, manager subnet.Manager, config *subnet.Config, address string) (backend.Network, *sync.WaitGroup, error) {
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return nil, nil, err
	}
	link, err := ipmatch.LookupExtIface(address, "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return nil, nil, fmt.Errorf("expected a link with the address %s of this node: %w", address, err)
	}
	chosen, err := backend.NewManager(ctx, manager, link).GetBackend(config.BackendType)
	if err != nil {
		return nil, nil, err
	}
	wait := &sync.WaitGroup{}
	network, err := chosen.RegisterNetwork(ctx, wait, config)
	return network, wait, err
}

// dropRoutes removes the way to another node whose subnet this node has now, as after a reset.
func dropRoutes(own ip.IP4Net) error {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: own.ToIPNet()}, netlink.RT_FILTER_DST)
	for _, route := range routes {
		if route.Gw != nil {
			err = errors.Join(err, netlink.RouteDel(&route))
		}
	}
	return err
}

// writeRules lets Pods out of the network under their node's address, and lets all traffic of Pods be forwarded.
func writeRules(ctx context.Context, config *subnet.Config, own *lease.Lease) error {
	if !config.EnableNFTables {
		return errors.New("expected EnableNFTables in " + networkConfig)
	}
	rules := &nftables.NFTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	none, none6 := ip.IP4Net{}, ip.IP6Net{}
	if err := rules.SetupAndEnsureMasqRules(ctx, config.Network, none, none, config.IPv6Network, none6, none6, own, resyncSeconds, false); err != nil {
		return err
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resyncSeconds)
	return nil
}

// writeCNI writes the configuration by which containerd connects the Pods of this node, in one step.
func writeCNI(pods string, mtu int) error {
	type fields map[string]any
	bridge := fields{
		"type":             "bridge",
		"bridge":           "cni0",
		"mtu":              mtu,
		"hairpinMode":      true,
		"isGateway":        true,
		"isDefaultGateway": true,
		"ipam":             fields{"type": "host-local", "ranges": [][]fields{{{"subnet": pods}}}},
	}
	ports := fields{"type": "portmap", "capabilities": fields{"portMappings": true}}
	content, err := json.MarshalIndent(fields{"cniVersion": "1.0.0", "name": "flannel", "plugins": []fields{bridge, ports}}, "", "  ")
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(cniDirectory, "."+cniFile)
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name())
	if _, err := fresh.Write(append(content, '\n')); err != nil {
		return err
	}
	if err := errors.Join(fresh.Sync(), fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), filepath.Join(cniDirectory, cniFile))
}
