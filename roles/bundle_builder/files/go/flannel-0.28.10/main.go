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
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
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
	if err := run(ctx, strings.Split(os.Getenv("HOST_IPS"), ",")); err != nil && !errors.Is(err, context.Canceled) {
		log.Exitf("flannel ends: %v", err)
	}
}

// run connects this node to the Pods of the others until ctx ends. The API names the node by NODE_NAME.
func run(ctx context.Context, addresses []string) error {
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
	network, wait, err := register(ctx, manager, config, addresses)
	if err != nil {
		return err
	}
	defer wait.Wait()
	own := subnets(config, network.Lease())
	if err := dropRoutes(own); err != nil {
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
	if err := writeCNI(own, network.MTU()); err != nil {
		return err
	}
	if err := manager.HandleSubnetFile(subnetFile, config, true, network.Lease().Subnet, network.Lease().IPv6Subnet, network.MTU()); err != nil {
		return err
	}
	if err := manager.CompleteLease(ctx, network.Lease(), wait); err != nil {
		return err
	}
	log.Infof("ready: Pods of this node have addresses of %v", own)
	<-ctx.Done()
	return nil
}

// subnets returns the networks of this node's Pods, one of each address family that the cluster has.
func subnets(config *subnet.Config, own *lease.Lease) []*net.IPNet {
	found := []*net.IPNet{own.Subnet.ToIPNet()}
	if config.EnableIPv6 {
		found = append(found, own.IPv6Subnet.ToIPNet())
	}
	return found
}

// register announces the subnets and the addresses of this node to the others.
func register(ctx context.Context, manager subnet.Manager, config *subnet.Config, addresses []string) (backend.Network, *sync.WaitGroup, error) {
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return nil, nil, err
	}
	var four, six string
	for _, address := range addresses {
		if found, err := netip.ParseAddr(address); err == nil && found.Is4() {
			four = address
		} else {
			six = address
		}
	}
	if four == "" || (config.EnableIPv6 && six == "") {
		return nil, nil, fmt.Errorf("expected an address of this node in each family of %s, got %v", networkConfig, addresses)
	}
	link, err := ipmatch.LookupExtIface(four, "", "", family, ipmatch.PublicIPOpts{PublicIPv6: six})
	if err != nil {
		return nil, nil, fmt.Errorf("expected one link with the addresses %v of this node: %w", addresses, err)
	}
	chosen, err := backend.NewManager(ctx, manager, link).GetBackend(config.BackendType)
	if err != nil {
		return nil, nil, err
	}
	wait := &sync.WaitGroup{}
	network, err := chosen.RegisterNetwork(ctx, wait, config)
	return network, wait, err
}

// dropRoutes removes the ways to another node whose subnets this node has now, as after a reset.
func dropRoutes(own []*net.IPNet) error {
	var problems error
	for _, subnet := range own {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Dst: subnet}, netlink.RT_FILTER_DST)
		problems = errors.Join(problems, err)
		for _, route := range routes {
			if route.Gw != nil {
				problems = errors.Join(problems, netlink.RouteDel(&route))
			}
		}
	}
	return problems
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
func writeCNI(pods []*net.IPNet, mtu int) error {
	type fields map[string]any
	var ranges [][]fields
	for _, subnet := range pods {
		ranges = append(ranges, []fields{{"subnet": subnet.String()}})
	}
	bridge := fields{
		"type":             "bridge",
		"bridge":           "cni0",
		"mtu":              mtu,
		"hairpinMode":      true,
		"isGateway":        true,
		"isDefaultGateway": true,
		"ipam":             fields{"type": "host-local", "ranges": ranges},
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
