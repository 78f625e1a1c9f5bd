"""Notifications through incoming webhooks of Slack, Mattermost and Rocket.Chat."""
